//! The program in the README. It runs until Ctrl-C.

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker, shutdown_signal};
use serde::{Deserialize, Serialize};

/// Sends one mail.
#[job(max_attempts = 5, backoff = exponential("1s", max = "10m"), timeout = "30s")]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Handler for SendEmail {
    async fn run(self, cx: &Context) -> JobResult {
        println!("attempt {}: mail to {}", cx.attempt(), self.to); // any error by `?` causes a retry
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let mut tx = database.pool().begin().await?;
    SendEmail { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
    tx.commit().await?; // now the job exists, with the other writes of this transaction
    Worker::new(database.pool().clone()).run(shutdown_signal()).await?;
    Ok(())
}
