//! Results of a handler: completion, a retry, a dead letter or a snooze. A snooze does not count as an attempt.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job, JobResult, Store, job};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};

#[job(name = "example_call", max_attempts = 3, backoff = exponential("20ms", max = "1s", jitter = 0.1))]
#[derive(Serialize, Deserialize)]
struct Call {
    answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Busy,
    TooMany,
    NoSuchNumber,
    NotYet,
    Never,
}

impl Handler for Call {
    async fn run(self, cx: &Context) -> JobResult {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        println!("{:?}, attempt {}", self.answer, cx.attempt());
        match self.answer {
            // Any error leads to a retry, including an error returned by `?`. The backoff is about 20 ms, then about 40 ms.
            Answer::Busy if !cx.is_last_attempt() => Err("busy".into()),
            // The retry starts after the delay that the service requested.
            Answer::TooMany if cx.attempt() == 1 => Err(Failure::retry_in(Duration::from_millis(50), "too many calls")),
            // Retrying is pointless: the job becomes a dead letter immediately.
            Answer::NoSuchNumber => Err(Failure::terminal("no such number")),
            // Not a failure: the job runs again later, and the attempt does not count.
            Answer::NotYet if ASKED.fetch_add(1, Relaxed) < 4 => Err(Failure::snooze(Duration::from_millis(10))),
            // The job becomes a dead letter after its last attempt.
            Answer::Never => Err("no answer".into()),
            _ => Ok(()),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let (pool, mut jobs) = (database.pool(), Vec::new());
    for answer in [Answer::Busy, Answer::TooMany, Answer::NoSuchNumber, Answer::NotYet, Answer::Never] {
        jobs.push(Call { answer }.enqueue(pool).await?.id());
    }
    examples::run_until_finished(Worker::new(pool.clone()), pool, &jobs).await?;
    for (job, wanted) in jobs.into_iter().zip([("completed", 3), ("completed", 2), ("dead", 1), ("completed", 1), ("dead", 3)]) {
        let job = examples::find_job(pool, job).await?;
        println!("{} after {} attempt(s), of which {} failed", job.state, job.attempts, job.failures.len());
        assert_eq!((job.state.name(), job.attempts), wanted);
    }
    Ok(())
}
