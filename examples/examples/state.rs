//! Shared state of handlers, such as clients, pools and settings. The state is passed to the worker once. A worker does not start if
//! state that one of its handlers needs is missing.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Simulated client of a mail service.
#[derive(Clone, Default)]
struct Mailer {
    sent: Arc<AtomicU32>,
}

impl Mailer {
    fn send(&self, to: &str) {
        println!("mail {} goes to {to}", self.sent.fetch_add(1, Relaxed) + 1);
    }
}

#[job(name = "example_welcome", state(Mailer))]
#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl Handler for Welcome {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Mailer>().send(&self.to);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, mailer) = (database.pool(), Mailer::default());

    let refusal = Worker::new(pool.clone()).run(async {}).await.expect_err("a worker without the mailer");
    println!("{refusal}");
    assert!(refusal.to_string().contains("Mailer"));

    let mut jobs = Vec::new();
    for to in ["ada@example.org", "bob@example.org"] {
        jobs.push(Welcome { to: to.into() }.enqueue(pool).await?.id());
    }
    examples::run_until_finished(Worker::new(pool.clone()).state(mailer.clone()), pool, &jobs).await?;
    assert_eq!(mailer.sent.load(Relaxed), 2);
    Ok(())
}
