//! What is told of attempts that ended here: log lines for those that failed, and the hook of the worker's owner for all.
//!
//! It decides nothing and writes nothing to the store.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use queue_core::{
    JobId, Outcome, Verdict,
    runner::{ClaimedJob, Ending},
};

/// What came of one attempt, as [`Worker::on_outcome`](crate::Worker::on_outcome) is given it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptOutcome<'a> {
    /// The job.
    pub job: JobId,
    /// The name that its type is stored under, which may be an alias.
    pub job_type: &'static str,
    /// The number of the attempt; the first is 1.
    pub attempt: u32,
    /// How many attempts the job has in all.
    pub max_attempts: u32,
    /// What the handler made of it.
    pub outcome: Outcome,
    /// What is written for it.
    pub verdict: Verdict,
    /// Why it failed, as it is stored: at most 8 KiB.
    pub error: Option<&'a str>,
    /// How long it took.
    pub ran: Duration,
}

/// Who is told besides the log.
type Hook = Arc<dyn Fn(&AttemptOutcome<'_>) + Send + Sync>;

/// Tells of attempts.
#[derive(Clone, Default)]
pub(crate) struct Teller(Vec<Hook>);

impl Teller {
    /// Tells this one too.
    pub(crate) fn add(&mut self, hook: impl Fn(&AttemptOutcome<'_>) + Send + Sync + 'static) {
        self.0.push(Arc::new(hook));
    }

    /// An attempt has ended, and this is written for it. Most attempts complete, and nobody has asked for them: that costs one comparison.
    pub(super) fn tell(&self, job: &ClaimedJob, outcome: Outcome, ending: &Ending) {
        if self.0.is_empty() && ending.is_complete() {
            return;
        }
        let told = AttemptOutcome {
            job: job.id,
            job_type: job.job_type,
            attempt: job.number(),
            max_attempts: job.most_attempts(),
            outcome,
            verdict: ending.verdict(),
            error: ending.error(),
            ran: ending.ran(),
        };
        log(&told);
        for hook in &self.0 {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(&told))) {
                // Its drop may panic, too.
                std::mem::forget(panic);
                tracing::error!(job = %told.job, "a hook given to `Worker::on_outcome` panicked; the job is as it would be without it");
            }
        }
    }
}

fn log(told: &AttemptOutcome<'_>) {
    let AttemptOutcome { job, job_type, attempt, max_attempts, .. } = told;
    let error = told.error.unwrap_or_default();
    if let Verdict::Retry(wait) = told.verdict {
        tracing::info!(%job, job_type, attempt, max_attempts, error, next_try_in = ?wait, "attempt failed");
    } else if matches!(told.verdict, Verdict::Dead) {
        tracing::warn!(%job, job_type, attempt, max_attempts, error, "dead letter; mend it, then `requeue {job}`");
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Teller").field(&self.0.len()).finish()
    }
}
