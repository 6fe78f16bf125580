//! A job type whose handler takes batches, and does with each job as its payload says. Its calls are counted in a table, as other effects.

use std::time::Duration;

use queue_core::{BatchContext, BatchHandler, Failure, JobBatch, JobId, JobResult, job};
use serde::{Deserialize, Serialize};

use crate::effects;

/// A job that does its part in a batch. Every attempt is first recorded in the table `effect`, those of one call in one transaction.
#[job(batch = 500, batch_wait = "300ms", max_attempts = 5, backoff = fixed("50ms", jitter = 0.5), timeout = "3s")]
#[derive(Serialize, Deserialize)]
pub struct Batched {
    /// What becomes of it.
    pub part: Part,
}

/// What a handler can do with one job of its batch. The first ones say something of it, the others end the batch for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// Say nothing of it.
    Rest,
    /// Complete it.
    Complete,
    /// Make it a dead letter.
    Dead,
    /// Fail it.
    Fail,
    /// Ask to be called again in so many ms, at the first two calls.
    Snooze(u64),
    /// Return an error.
    Error,
    /// Return an error that no further try mends.
    Terminal,
    /// Panic.
    Panic,
    /// End the process with SIGABRT.
    Abort,
    /// Await for ever.
    Hang,
    /// Wait until told to stop, then return an error.
    UntilAsked,
    /// At the first attempt do this, later complete it.
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
            Part::UntilAsked => {
                cx.cancelled().cancelled().await;
                Err("asked".into())
            }
            _ => Ok(()),
        }
    }
}
