//! Bulk enqueues: an iterator of jobs of one type, and a batch of jobs of several types. Each bulk enqueue is atomic.

use queue_core::{Batch, Context, Handler, Job, JobResult, Priority, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_thumbnail", priority = 30)]
#[derive(Serialize, Deserialize)]
struct Thumbnail {
    photo: u32,
}

impl Handler for Thumbnail {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

#[job(name = "example_album")]
#[derive(Serialize, Deserialize)]
struct Album {
    title: String,
}

impl Handler for Album {
    async fn run(self, _: &Context) -> JobResult {
        println!("the album {} is ready", self.title);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();

    // The iterator is not collected: a large number of jobs is streamed by COPY while the iterator generates them.
    let photos = (0..10_000).map(|photo| Thumbnail { photo });
    let mut tx = pool.begin().await?;
    let thumbnails = Thumbnail::enqueue_all(photos, &mut tx).returning_ids().await?;
    tx.commit().await?;
    println!("enqueued {} thumbnails", thumbnails.len());

    let mut batch = Batch::new();
    batch.add(Album { title: "summer".into() })?.priority(Priority::EXPLICIT);
    batch.add(Thumbnail { photo: 10_000 })?;
    let mixed = batch.enqueue(pool).await?;

    let jobs: Vec<_> = thumbnails.iter().map(queue_core::JobHandle::id).chain(mixed).collect();
    examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs).await?;
    assert_eq!(examples::find_job(pool, jobs[9_999]).await?.state.name(), "completed");
    Ok(())
}
