//! Results of attempts, from which the endings of jobs are computed.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use super::ClaimedJob;
use crate::{
    context::{CommitState, NOT_COMPLETED, Registration, attempts_since},
    define::{Ending, Failure, JobId, Options, Outcome, RestartPayload, Retain, Verdict, check_output, verdict},
    trace::OutcomeRecorder,
};

/// Result of an attempt, from which the ending of the job is computed.
pub struct AttemptEnd {
    outcome: Outcome,
    output: Option<String>,
    error: Option<String>,
    /// State of the handler's transaction, if the handler began one.
    commit: Option<CommitState>,
    /// Number of the last attempt that journaled a step. Set only for durable jobs.
    journaled: Option<i16>,
    /// Whether the attempt ended because its handler is waiting. The next attempt resumes the handler.
    is_suspended: bool,
    /// Signals that the handler waits for.
    signals: Vec<String>,
    /// New payload of the job, if the handler restarted the job.
    restart: Option<RestartPayload>,
    /// End time of the attempt. Set only if the attempt's log is written after the attempt has ended.
    end_time: Option<Instant>,
}

impl AttemptEnd {
    pub(super) fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::without_error(outcome) }
    }

    fn without_error(outcome: Outcome) -> Self {
        let (output, error, commit, end_time, journaled) = (None, None, None, None, None);
        Self { outcome, output, error, commit, end_time, journaled, is_suspended: false, signals: Vec::new(), restart: None }
    }

    /// Creates the result of a completed attempt, with the output as JSON text.
    pub fn completed(output: Option<String>) -> Self {
        Self { output, ..Self::without_error(Outcome::Ok) }
    }

    /// Creates the result of an attempt that failed and is not retried.
    pub fn terminal(error: impl Into<String>) -> Self {
        Self::new(Outcome::Terminal, error)
    }

    /// Creates the result of an attempt that failed and may be retried.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::new(Outcome::Failed, error)
    }

    fn failed_with(failure: &Failure) -> Self {
        let error = failure.error().map(|_| failure.to_string());
        Self { error, ..Self::without_error(failure.kind().outcome()) }
    }

    pub(crate) fn interrupted() -> Self {
        Self::without_error(Outcome::Interrupted)
    }

    /// Creates the result of a suspended attempt, whose handler waits for at least `wait`.
    pub(super) fn suspended(wait: Duration) -> Self {
        Self { is_suspended: true, ..Self::without_error(Outcome::Snoozed(wait)) }
    }

    /// Creates the result of a parked attempt, whose handler waits for one of `signals`, for at most `wait` if given.
    pub(super) fn parked(wait: Option<Duration>, signals: Vec<String>) -> Self {
        Self { is_suspended: true, signals, ..Self::without_error(Outcome::Parked(wait)) }
    }

    /// Creates the result of an attempt whose handler restarted the job.
    pub(super) fn restarted(restart: RestartPayload) -> Self {
        Self { restart: Some(restart), ..Self::without_error(Outcome::Restarted) }
    }

    /// Converts a parked attempt to an attempt suspended for `delay`, if a delay is given. Callers pass a delay if the state of the journal
    /// is uncertain.
    pub(super) fn suspend_if_parked(self, delay: Option<Duration>) -> Self {
        match (self.outcome, delay) {
            (Outcome::Parked(_), Some(delay)) => Self::suspended(delay),
            _ => self,
        }
    }

    pub(super) fn with_last_journaled(self, journaled: Option<i16>) -> Self {
        Self { journaled, ..self }
    }

    pub(super) fn cancelled() -> Self {
        Self::without_error(Outcome::Cancelled)
    }

    pub(super) fn panicked(panic: Box<dyn Any + Send>) -> Self {
        Self::panicked_with(&panic_text(panic))
    }

    pub(super) fn panicked_with(text: &str) -> Self {
        Self::new(Outcome::Panicked, format!("panicked: {text}"))
    }

    /// Creates the result of an attempt from the handler's return value. If a stop was requested, an error counts as an interruption
    /// instead of a failure.
    pub(super) fn returned(result: Result<Option<String>, &Failure>, stop_requested: bool) -> Self {
        match result {
            Ok(output) => match check_output(output.as_deref()) {
                Ok(()) => Self::completed(output),
                Err(why) => Self::terminal(why),
            },
            Err(_) if stop_requested => Self::interrupted(),
            Err(failure) => Self::failed_with(failure),
        }
    }

    /// Combines the handler's result with the state of the handler's transaction and the outcome written by the commit.
    pub(super) fn with_commit(self, state: CommitState, committed: Option<Outcome>, job: JobId) -> Self {
        match state {
            CommitState::Written => {
                let asks_for_another = match self.outcome {
                    Outcome::Failed
                    | Outcome::Panicked
                    | Outcome::RetryIn(_)
                    | Outcome::Snoozed(_)
                    | Outcome::Parked(_)
                    | Outcome::Restarted => true,
                    Outcome::Ok | Outcome::Terminal | Outcome::TimedOut | Outcome::Interrupted | Outcome::Cancelled => false,
                };
                if asks_for_another {
                    let error = self.error.as_deref().unwrap_or_default();
                    tracing::warn!(%job, error, "the handler failed after its transaction ended the job; the job stays ended");
                }
                let outcome = committed.unwrap_or(self.outcome);
                Self { commit: Some(state), error: self.error.filter(|_| outcome != Outcome::Ok), outcome, ..self }
            }
            CommitState::Lost => {
                tracing::warn!(%job, "lease lost: the handler's transaction was rolled back, another worker may run the job");
                Self { commit: Some(state), ..self }
            }
            // If a commit with an unknown result did succeed, the lease no longer lists the job, and the verdict of this attempt is
            // rejected.
            CommitState::Open | CommitState::Committing | CommitState::Unknown | CommitState::Closed => {
                if self.outcome == Outcome::Ok {
                    return Self { commit: Some(state), ..Self::failed(NOT_COMPLETED) };
                }
                Self { commit: Some(state), ..self }
            }
        }
    }

    /// Returns the outcome from which the verdict is computed.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns whether the attempt ended because its handler is waiting. Crashes before such a wait are no longer counted.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Returns whether the handler's transaction wrote the job's ending.
    pub fn is_written(&self) -> bool {
        self.commit == Some(CommitState::Written)
    }

    /// Records the outcome in the attempt's span.
    pub(super) fn record(&self, recorder: OutcomeRecorder, options: &Options) {
        // An error from a handler with a sealed payload may contain parts of the payload, so the error text is omitted.
        let error = self.error.as_deref().filter(|_| self.outcome != Outcome::Ok);
        recorder.record(self.outcome.name(), error.map(|error| if options.seal.is_some() { "" } else { error }));
    }

    /// Records the current time as the end time of the attempt, so that writes after the attempt do not count as run time.
    pub(super) fn fix_end_time(self) -> Self {
        Self { end_time: Some(Instant::now()), ..self }
    }

    /// Returns the duration of an attempt that started at `since`. The duration ends at the recorded end time, or at the current time if
    /// no end time is recorded.
    pub fn ran(&self, since: Instant) -> Duration {
        self.end_time.unwrap_or_else(Instant::now).saturating_duration_since(since)
    }

    /// Returns whether the attempt ended with an error.
    pub(super) fn has_error(&self) -> bool {
        self.error.is_some() && self.outcome != Outcome::Ok
    }

    /// Returns whether the attempt needs no further write, because the handler's transaction wrote the ending or the lease was lost.
    pub fn is_over(&self) -> bool {
        matches!(self.commit, Some(CommitState::Written | CommitState::Lost))
    }

    /// Returns the ending to write. `dice` is a uniform random number from 0 to 1 that determines the jitter of the backoff.
    pub fn ending(self, registration: Option<&Registration>, job: &ClaimedJob, ran: Duration, dice: f64) -> Ending {
        let options = registration.map(Registration::options);
        let backoff = options.map(|options| options.backoff).unwrap_or_default();
        let verdict = verdict(self.outcome, attempts_since(job.number(), self.journaled), job.most_attempts(), &backoff, dice);
        let keep = options.is_none_or(|options| options.retain != Retain::None);
        // A released attempt is not charged, and a job without charged attempts may expire. A job that is suspended or has journaled a step
        // must not expire, so its attempt is charged.
        let is_released =
            matches!(verdict, Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Release) && (self.is_suspended || self.journaled.is_some());
        let started = i16::from(is_released && job.may_begin_within().is_some());
        Ending::new(verdict, job.attempt + started, job.key)
            .with_record(keep)
            .with_dependents(job.dependents())
            .with_duration(ran)
            .with_output(self.output)
            .with_error(self.error)
            .with_signals(self.signals)
            .with_restart(self.restart)
    }
}

/// Returns the message of a panic, or a placeholder if the panic payload is not a string.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    // Dropping the panic payload may panic again. The payload of that second panic is leaked, because dropping it could panic as well.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text.unwrap_or_else(|| "with a payload that is not a string".to_owned())
}
