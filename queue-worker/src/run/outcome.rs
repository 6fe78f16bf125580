//! Reports finished attempts: logs failed attempts and calls the outcome hooks.
//!
//! Reporting neither affects the jobs nor accesses the store.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use queue_core::{
    JobId,
    options::{Outcome, Verdict},
    runner::{ClaimedJob, Ending, HistoryOutcome, WOULD_FAIL_AGAIN, program_name},
};

/// Outcome of one attempt, passed to the hooks of [`Worker::on_outcome`](crate::Worker::on_outcome).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{Worker, shutdown_signal};
///
/// let worker = Worker::new(pool).on_outcome(|attempt| {
///     if let Some(error) = attempt.error {
///         println!("attempt {} of {} by job {}: {error}", attempt.attempt, attempt.max_attempts, attempt.job);
///     }
/// });
/// worker.run(shutdown_signal()).await
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptOutcome<'a> {
    /// Id of the attempted job.
    pub job: JobId,
    /// Job type name as stored, which may be an alias.
    pub job_type: &'static str,
    /// Attempt number, starting at 1.
    pub attempt: u32,
    /// Maximum number of attempts for the job.
    pub max_attempts: u32,
    /// Outcome that the handler returned or caused.
    pub outcome: Outcome,
    /// Verdict that is written for the job.
    pub verdict: Verdict,
    /// Error text as stored, at most 8 KiB. `None` if the attempt did not fail.
    pub error: Option<&'a str>,
    /// Duration of the attempt.
    pub ran: Duration,
}

/// Hook that receives the outcome of each attempt.
type OutcomeHook = Arc<dyn Fn(&AttemptOutcome<'_>) + Send + Sync>;

/// Observer of attempt outcomes. Logs failed attempts and calls the hooks.
#[derive(Clone, Default)]
pub(crate) struct OutcomeObserver(Vec<OutcomeHook>);

impl OutcomeObserver {
    pub(crate) fn add(&mut self, hook: impl Fn(&AttemptOutcome<'_>) + Send + Sync + 'static) {
        self.0.push(Arc::new(hook));
    }

    /// Reports an attempt that ended with the verdict in `ending`. Without hooks, returns immediately for a completed attempt.
    pub(super) fn observe(&self, job: &ClaimedJob, outcome: Outcome, ending: &Ending) {
        if self.0.is_empty() && ending.is_complete() {
            return;
        }
        let outcome = AttemptOutcome {
            job: job.id,
            job_type: job.job_type,
            attempt: job.number(),
            max_attempts: job.most_attempts(),
            outcome,
            verdict: ending.verdict(),
            error: ending.error(),
            ran: ending.ran(),
        };
        log(&outcome, ending);
        for hook in &self.0 {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(&outcome))) {
                // The panic's payload is leaked, because dropping the payload may panic as well.
                std::mem::forget(panic);
                tracing::error!(job = %outcome.job, "hook passed to `Worker::on_outcome` panicked; the job is not affected");
            }
        }
    }
}

fn log(outcome: &AttemptOutcome<'_>, ending: &Ending) {
    let AttemptOutcome { job, job_type, attempt, max_attempts, .. } = outcome;
    let error = outcome.error.unwrap_or_default();
    match ending.history_outcome() {
        HistoryOutcome::Retried => {
            let next_try_in = ending.wait().unwrap_or_default();
            tracing::info!(%job, job_type, attempt, max_attempts, error, ?next_try_in, "attempt failed");
        }
        HistoryOutcome::Dead if error.contains(WOULD_FAIL_AGAIN) => {
            let program = program_name();
            tracing::warn!(%job, job_type, attempt, max_attempts, error, "dead letter; do what the error says, then `{program} discard {job}`");
        }
        HistoryOutcome::Dead => {
            tracing::warn!(%job, job_type, attempt, max_attempts, error, "dead letter; fix the cause, then `{} requeue {job}`", program_name());
        }
        HistoryOutcome::Completed
        | HistoryOutcome::Cancelled
        | HistoryOutcome::Snoozed
        | HistoryOutcome::Released
        | HistoryOutcome::NoAttempt => {}
    }
}

impl fmt::Debug for OutcomeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutcomeObserver").field(&self.0.len()).finish()
    }
}
