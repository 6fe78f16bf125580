//! Enqueues jobs with a delay, a start time, or a priority.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use queue_core::{Context, Handler, Job, JobResult, Priority, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Texts of the jobs, in the order in which the jobs ran.
type RanTexts = Arc<Mutex<Vec<String>>>;

#[job(name = "example_say", state(RanTexts))]
#[derive(Serialize, Deserialize)]
struct Say {
    text: String,
}

impl Handler for Say {
    async fn run(self, cx: &Context) -> JobResult {
        println!("{}", self.text);
        cx.state::<RanTexts>().lock().unwrap_or_else(PoisonError::into_inner).push(self.text);
        Ok(())
    }
}

fn say(text: &str) -> Say {
    Say { text: text.to_owned() }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, said) = (database.pool(), RanTexts::default());

    let tomorrow = SystemTime::now() + Duration::from_hours(24);
    let far = say("tomorrow").enqueue(pool).at(tomorrow.into()).await?;
    let soon = SystemTime::now() + Duration::from_millis(400);
    let jobs = [
        say("fifth").enqueue(pool).priority(Priority::BACKFILL).at(soon.into()).await?.id(),
        say("fourth").enqueue(pool).priority(Priority::BACKFILL).after(Duration::from_millis(200)).await?.id(),
        say("third").enqueue(pool).priority(Priority::BACKFILL).await?.id(),
        say("second").enqueue(pool).await?.id(),
        say("first").enqueue(pool).priority(Priority::EXPLICIT).await?.id(),
    ];
    // Run one handler at a time, so that the order is visible.
    let worker = Worker::new(pool.clone()).concurrency(1).state(Arc::clone(&said));
    examples::run_until_finished(worker, pool, &jobs).await?;

    assert_eq!(*said.lock().unwrap_or_else(PoisonError::into_inner), ["first", "second", "third", "fourth", "fifth"]);
    assert_eq!(examples::find_job(pool, far.id()).await?.state.name(), "scheduled");
    far.cancel(pool).await?;
    Ok(())
}
