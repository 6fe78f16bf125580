//! Pauses a queue while a service that its jobs depend on is migrated. Jobs in the queue do not start, and no job is lost. Other queues
//! continue.

use queue_core::{Context, Handler, Job, JobResult, JobState, Store, job, operate};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_letter", queue = "example_post")]
#[derive(Serialize, Deserialize)]
struct Letter {
    to: String,
}

impl Handler for Letter {
    async fn run(self, _: &Context) -> JobResult {
        println!("a letter to {}", self.to);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(Worker::new(pool.clone()).run(async move { drop(stopped.await) }));

    // On the command line: `queue-worker pause --queue example_post --reason 'the post office moves' --wait`.
    let post = operate::Scope::queue("example_post");
    queue.pause_with_reason(&post, Some("the post office moves")).await?;
    queue.until_paused(&post).await?;
    let letter = Letter { to: "Ada".into() }.enqueue(pool).await?;
    for pause in queue.pauses().await? {
        println!("{} is paused ({}), {} jobs wait", pause.scope, pause.reason.unwrap_or_default(), pause.ready);
    }
    assert_eq!(letter.status(pool).await?.state, JobState::Ready);

    // On the command line: `queue-worker resume --queue example_post`.
    queue.resume(&post).await?;
    letter.wait(&queue).await?;

    drop(stop);
    worker.await??;
    Ok(())
}
