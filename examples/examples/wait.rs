//! Waits for the output of a job that runs in another process. The job is given by its handle or by its id.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job, JobId, JobResult, Queue, Store, job, wait::WaitError};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Job that adds two numbers.
#[job(name = "example_sum", output = i64)]
#[derive(Serialize, Deserialize)]
struct Sum {
    numbers: Vec<i64>,
}

impl Handler for Sum {
    async fn run(self, _: &Context) -> JobResult<i64> {
        if self.numbers.is_empty() {
            return Err(Failure::terminal("nothing to add"));
        }
        Ok(self.numbers.iter().sum())
    }
}

/// Waits for the job and formats its output, as a web server could do with an id from a URL.
async fn answer(id: JobId, queue: &Queue) -> String {
    match queue.job(id).wait::<Sum>().timeout(Duration::from_secs(20)).await {
        Ok(sum) => format!("the sum is {sum}"),
        Err(WaitError::Dead { error, .. }) => format!("that cannot be added: {error}"),
        Err(WaitError::Timeout { .. }) => "ask again later".to_owned(),
        Err(error) => format!("sorry: {error}"),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool().clone();
    let stop = CancellationToken::new();
    let worker = tokio::spawn(Worker::new(pool.clone()).run(stop.clone().cancelled_owned()));

    let sum = Sum { numbers: vec![1, 2, 3] }.enqueue(&pool).await?;
    let queue = database.queue(); // all waits of this handle and its clones share one connection
    assert_eq!(sum.wait(&queue).await?, 6);

    let ids = [sum.id(), Sum { numbers: vec![] }.enqueue(&pool).await?.id(), JobId(42)];
    for id in ids {
        println!("{id}: {}", answer(id, &queue).await);
    }
    assert_eq!(answer(ids[1], &queue).await, "that cannot be added: nothing to add");
    println!("{:?}", sum.status(&pool).await?);
    stop.cancel();
    worker.await??;
    Ok(())
}
