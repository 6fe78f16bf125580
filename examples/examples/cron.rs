//! Schedules: the worker declares one schedule, and the program creates another at run time. The program shows the next ticks, a pause,
//! and an immediate run.

use std::time::Duration;

use queue_core::{
    Context, Handler, JobResult, JobState, Store, job,
    schedule::{Overlap, Schedule},
};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

/// Job that runs at 4:30 in Berlin, Monday to Friday. The payload is the type's default value.
#[job(name = "example_nightly", cron = "30 4 * * MON-FRI", tz = "Europe/Berlin")]
#[derive(Default, Serialize, Deserialize)]
struct Nightly {}

impl Handler for Nightly {
    async fn run(self, _: &Context) -> JobResult {
        println!("what is done at night");
        Ok(())
    }
}

#[job(name = "example_tick")]
#[derive(Serialize, Deserialize)]
struct Tick {
    of: String,
}

impl Handler for Tick {
    async fn run(self, cx: &Context) -> JobResult {
        let tick = cx.tick().ok_or("no schedule has made this job")?;
        println!("{} at {}", self.of, tick.at);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, queue) = (database.pool().clone(), database.queue());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone()).register::<Nightly>().register::<Tick>();
    let worker = tokio::spawn(worker.run(async { drop(stopped.await) }));

    let second = Schedule::every(Duration::from_secs(1)).overlap(Overlap::Allow).job(&Tick { of: "every second".into() });
    let every_second = queue.schedule("example_second");
    every_second.create(&second).await?;
    let two = async || Ok::<_, queue_core::Error>(every_second.ticks(2).await?);
    while two().await?.len() < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    every_second.pause().await?;
    let ticks = two().await?;
    assert_eq!((ticks[0].tick - ticks[1].tick).num_seconds(), 1);
    every_second.delete().await?;

    // Wait until the worker has declared the schedule.
    let nightly = loop {
        match queue.schedule("example_nightly").find().await {
            Ok(found) if found.next_at.is_some() => break found,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    println!("{} runs next at {:?}", nightly.name, nightly.next(3));
    let job = queue.schedule("example_nightly").run_now().await?;
    while examples::find_job(&pool, job).await?.state != JobState::Completed {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = stop.send(());
    worker.await??;
    Ok(())
}
