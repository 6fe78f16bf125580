//! What follows an attempt is what the handler returns: tried again, later, never, or not counted.

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
            // Any error, also by `?`: another attempt after the backoff, 20 ms and then 40 ms.
            Answer::Busy if !cx.is_last_attempt() => Err("busy".into()),
            // The other side said when to come back.
            Answer::TooMany if cx.attempt() == 1 => Err(Failure::retry_in(Duration::from_millis(50), "too many calls")),
            // No further try will mend it: a dead letter at once.
            Answer::NoSuchNumber => Err(Failure::terminal("no such number")),
            // Not a failure: asked again later, and the attempt is not counted.
            Answer::NotYet if ASKED.fetch_add(1, Relaxed) < 4 => Err(Failure::snooze(Duration::from_millis(10))),
            // A dead letter after the last attempt.
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
    examples::run_until_over(Worker::new(pool.clone()), pool, &jobs).await?;
    for (job, wanted) in jobs.into_iter().zip([("completed", 3), ("completed", 2), ("dead", 1), ("completed", 1), ("dead", 3)]) {
        let job = examples::look(pool, job).await?;
        println!("{} after {} attempt(s), of which {} failed", job.state, job.attempts, job.failures.len());
        assert_eq!((job.state.name(), job.attempts), wanted);
    }
    Ok(())
}
