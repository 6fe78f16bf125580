//! Expiry: a login code is valid for a minute. If its job does not start in time, the job expires without running, and waiting callers are
//! notified.

use std::time::Duration;

use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job, wait::WaitError};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_code", queue = "example_codes", expires = "1m")]
#[derive(Serialize, Deserialize)]
struct SendCode {
    to: String,
}

impl Handler for SendCode {
    async fn run(self, _: &Context) -> JobResult {
        println!("a code for {}", self.to);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();

    // No worker is running yet. The first code is valid for one millisecond. The second code is valid for one minute, as its type declares.
    let late = SendCode { to: "Ada".into() }.enqueue(pool).expires_in(Duration::from_millis(1)).await?;
    let in_time = SendCode { to: "Bob".into() }.enqueue(pool).await?;
    // In SQL, the expiry time is an option: select queue.enqueue('example_code', '{"to": "Ada"}', '{"expires_in": "10 minutes"}')

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(Worker::new(pool.clone()).run(async move { drop(stopped.await) }));
    in_time.wait(&queue).await?;
    match late.wait(&queue).await {
        Err(WaitError::Expired { job }) => println!("job {job} has expired: ask for another code"),
        other => anyhow::bail!("it should have expired: {other:?}"),
    }

    // On the command line: `queue-worker list --state expired` and `queue-worker stats`.
    assert_eq!(queue.jobs().queue("example_codes").state(JobState::Expired).list().await?.jobs[0].id, late.id());

    // A requeued job has no expiry time. On the command line: `queue-worker requeue ID`.
    late.requeue(pool).await?;
    late.wait(&queue).await?;

    drop(stop);
    worker.await??;
    Ok(())
}
