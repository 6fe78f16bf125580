//! Batch job type whose payload specifies the handler's action for each job. The table `effect` records every attempt of every job.

use std::time::Duration;

use queue_core::{
    Failure, JobId, JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use serde::{Deserialize, Serialize};

use crate::effects;

/// Batch job. Each handler call first records the attempts of all its jobs in the table `effect`, in one transaction.
#[job(batch = 500, batch_wait = "300ms", max_attempts = 5, backoff = fixed("50ms", jitter = 0.5), timeout = "3s")]
#[derive(Serialize, Deserialize)]
pub struct Batched {
    /// Action of the handler for this job.
    pub part: Part,
}

/// Action of the handler for one job of its batch. The variants from `Complete` to `Snooze` set a result for the job. The variants from
/// `Error` to `UntilCancelled` end the whole batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// Sets no result for the job.
    Rest,
    /// Completes the job.
    Complete,
    /// Fails the job with a terminal error.
    Dead,
    /// Fails the job.
    Fail,
    /// Snoozes the job for this number of ms on its first two recorded attempts, and completes the job on later attempts.
    Snooze(u64),
    /// Returns an error from the handler.
    Error,
    /// Returns a terminal error from the handler.
    Terminal,
    /// Panics in the handler.
    Panic,
    /// Aborts the process with SIGABRT.
    Abort,
    /// Awaits forever.
    Hang,
    /// Waits for cancellation, then returns an error.
    UntilCancelled,
    /// Performs this action on the first attempt, and completes the job on later attempts.
    First(Box<Part>),
}

impl BatchHandler for Batched {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let (ids, attempts): (Vec<JobId>, Vec<i32>) = batch.iter().map(|job| (job.id(), job.attempt() as i32)).unzip();
        sqlx::query("insert into effect (job, attempt, pid) select j, a, $3 from unnest($1::bigint[], $2::int[]) u (j, a)")
            .bind(ids)
            .bind(attempts)
            .bind(std::process::id().cast_signed())
            .execute(cx.pool())
            .await?;
        let mut last = Part::Rest;
        for job in batch.iter_mut() {
            let part = match job.payload().part.clone() {
                Part::First(part) if job.attempt() == 1 => *part,
                Part::First(_) => Part::Complete,
                part => part,
            };
            match part {
                Part::Rest => {}
                Part::Dead => job.fail(Failure::terminal("no way")),
                Part::Fail => job.fail("this one failed"),
                Part::Snooze(ms) if effects(cx.pool(), job.id()).await? < 3 => job.fail(Failure::snooze(Duration::from_millis(ms))),
                Part::Complete | Part::Snooze(_) => job.complete(()),
                part => last = part,
            }
        }
        match last {
            Part::Error => Err("the batch failed".into()),
            Part::Terminal => Err(Failure::terminal("the batch failed for good")),
            Part::Panic => panic!("as told"),
            Part::Abort => std::process::abort(),
            Part::Hang => std::future::pending().await,
            Part::UntilCancelled => {
                cx.cancelled().cancelled().await;
                Err("asked".into())
            }
            _ => Ok(()),
        }
    }
}
