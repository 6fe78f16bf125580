//! Back pressure: a queue at its capacity rejects jobs. The producer then drops the job, fails, or waits.

use std::{future::IntoFuture as _, time::Duration};

use queue_core::{Context, Error, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_resize", queue = "example_photos")]
#[derive(Serialize, Deserialize)]
struct Resize {
    photo: u32,
}

impl Handler for Resize {
    async fn run(self, _: &Context) -> JobResult {
        println!("photo {} is resized", self.photo);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    // An operator sets the capacity with `queue-worker capacity example_photos 3`.
    queue.set_capacity("example_photos", Some(3)).await?;

    let mut jobs = Vec::new();
    for photo in 0..3 {
        jobs.push(Resize { photo }.enqueue(pool).await?.id());
    }
    match (Resize { photo: 3 }).enqueue(pool).await {
        Err(Error::AtCapacity { queue, capacity }) => println!("{queue} is at its capacity: {capacity} jobs wait"),
        other => panic!("{other:?}"),
    }
    // The rejected job does not abort the transaction, which continues without the job.
    let mut tx = pool.begin().await?;
    assert!(Resize { photo: 4 }.enqueue(&mut tx).unless_at_capacity().await?.is_none());
    tx.commit().await?;

    // The waiting producer enqueues its job as soon as a worker claims a job from the queue.
    let worker = examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs);
    let waits = Resize { photo: 5 }.enqueue(pool).wait_for_capacity(Duration::from_secs(30));
    let (done, last) = tokio::join!(worker, waits.into_future());
    done?;
    examples::run_until_finished(Worker::new(pool.clone()), pool, &[last?.id()]).await?;

    queue.set_capacity("example_photos", None).await?;
    Ok(())
}
