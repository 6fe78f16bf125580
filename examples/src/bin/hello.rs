//! Example program of the README. Enqueues a job and runs a worker until Ctrl-C.

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker, shutdown_signal};
use serde::{Deserialize, Serialize};

/// Sends an email.
#[job(max_attempts = 5, backoff = exponential("1s", max = "10m"), timeout = "30s")]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Handler for SendEmail {
    async fn run(self, cx: &Context) -> JobResult {
        println!("attempt {}: mail to {}", cx.attempt(), self.to); // an error returned with `?` causes a retry
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, or an embedded PostgreSQL server
    database.migrate(Store::default()).await?;
    let mut tx = database.pool().begin().await?;
    SendEmail { to: "ada@example.org".into() }.enqueue(&mut tx).await?;
    tx.commit().await?; // commits the job together with the other writes of this transaction
    Worker::new(database.pool().clone()).run(shutdown_signal()).await?;
    Ok(())
}
