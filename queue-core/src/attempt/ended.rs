//! How an attempt ended, and from there to what is written.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use super::ClaimedJob;
use crate::{
    context::{CommitState, NOT_COMPLETED, Registration, attempts_since},
    define::{Anew, Ending, Failure, JobId, Options, Outcome, Retain, Verdict, check_output, verdict},
    trace::Told,
};

/// How an attempt ended.
pub struct Ended {
    outcome: Outcome,
    output: Option<String>,
    error: Option<String>,
    /// How far the handler came with a transaction of its own, if it began one.
    commit: Option<CommitState>,
    /// Of a durable job: the attempt that journaled last.
    journaled: Option<i16>,
    /// Its handler waits: the next attempt goes on.
    is_suspended: bool,
    /// And it waits for any of these signals.
    signals: Vec<String>,
    /// With what its job begins anew.
    anew: Option<Anew>,
    /// When it was over, if something was waited for since.
    over: Option<Instant>,
}

impl Ended {
    pub(super) fn new(outcome: Outcome, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::without_error(outcome) }
    }

    fn without_error(outcome: Outcome) -> Self {
        let (output, error, commit, over, journaled) = (None, None, None, None, None);
        Self { outcome, output, error, commit, over, journaled, is_suspended: false, signals: Vec::new(), anew: None }
    }

    /// With an output, as JSON text.
    pub fn completed(output: Option<String>) -> Self {
        Self { output, ..Self::without_error(Outcome::Ok) }
    }

    /// For good.
    pub fn terminal(error: impl Into<String>) -> Self {
        Self::new(Outcome::Terminal, error)
    }

    /// Another try may mend it.
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

    /// Its handler waits for so long at least.
    pub(super) fn suspended(wait: Duration) -> Self {
        Self { is_suspended: true, ..Self::without_error(Outcome::Snoozed(wait)) }
    }

    /// Its handler waits for one of these signals, for so long at most.
    pub(super) fn parked(wait: Option<Duration>, signals: Vec<String>) -> Self {
        Self { is_suspended: true, signals, ..Self::without_error(Outcome::Parked(wait)) }
    }

    /// Its handler began the job anew, with this.
    pub(super) fn restarted(anew: Anew) -> Self {
        Self { anew: Some(anew), ..Self::without_error(Outcome::Restarted) }
    }

    /// Its journal is not known, if there is such a time: it is put off for that instead of being parked.
    pub(super) fn put_off(self, unsure: Option<Duration>) -> Self {
        match (self.outcome, unsure) {
            (Outcome::Parked(_), Some(wait)) => Self::suspended(wait),
            _ => self,
        }
    }

    /// Of a durable job, which this attempt journaled last.
    pub(super) fn going_on(self, journaled: Option<i16>) -> Self {
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

    /// The handler returned this, after or before it was asked to end: one that ends early because it was asked to has not failed.
    pub(super) fn returned(result: Result<Option<String>, &Failure>, asked: bool) -> Self {
        match result {
            Ok(output) => match check_output(output.as_deref()) {
                Ok(()) => Self::completed(output),
                Err(why) => Self::terminal(why),
            },
            Err(_) if asked => Self::interrupted(),
            Err(failure) => Self::failed_with(failure),
        }
    }

    /// Of a handler that began a transaction of its own, which came so far and said this of the job.
    pub(super) fn after(self, state: CommitState, said: Option<Outcome>, job: JobId) -> Self {
        match state {
            CommitState::Written => {
                if matches!(
                    self.outcome,
                    Outcome::Failed
                        | Outcome::Panicked
                        | Outcome::RetryIn(_)
                        | Outcome::Snoozed(_)
                        | Outcome::Parked(_)
                        | Outcome::Restarted
                ) {
                    let error = self.error.as_deref().unwrap_or_default();
                    tracing::warn!(%job, error, "the handler failed after its transaction had ended the job, which stays as it is");
                }
                let outcome = said.unwrap_or(self.outcome);
                Self { commit: Some(state), error: self.error.filter(|_| outcome != Outcome::Ok), outcome, ..self }
            }
            CommitState::Lost => {
                tracing::warn!(%job, "lease lost: a handler's transaction was rolled back, others have this job");
                Self { commit: Some(state), ..self }
            }
            // If a commit in doubt did happen, this verdict is refused: the job is no longer in the lease.
            CommitState::Open | CommitState::Committing | CommitState::Unknown | CommitState::Closed => {
                if self.outcome == Outcome::Ok {
                    return Self { commit: Some(state), ..Self::failed(NOT_COMPLETED) };
                }
                Self { commit: Some(state), ..self }
            }
        }
    }

    /// What the handler made of it.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether the handler waits: what its attempts came to before counts no more.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Whether the handler's own transaction has written the job's ending.
    pub fn is_written(&self) -> bool {
        self.commit == Some(CommitState::Written)
    }

    /// Says it in the attempt's span.
    pub(super) fn trace(&self, span: Told, options: &Options) {
        // What the handler of a sealed payload says of an error may have some of it in clear: not that.
        let error = self.error.as_deref().filter(|_| self.outcome != Outcome::Ok);
        span.end(self.outcome.word(), error.map(|error| if options.seal.is_some() { "" } else { error }));
    }

    /// It is over now, whatever is written of it still.
    pub(super) fn over_now(self) -> Self {
        Self { over: Some(Instant::now()), ..self }
    }

    /// How long an attempt took that began then: until now, unless it was over before.
    pub fn ran(&self, since: Instant) -> Duration {
        self.over.unwrap_or_else(Instant::now).saturating_duration_since(since)
    }

    /// Whether an error is said of it.
    pub(super) fn has_error(&self) -> bool {
        self.error.is_some() && self.outcome != Outcome::Ok
    }

    /// Whether nothing is left to be written: the handler's own transaction has, or others have the job.
    pub fn is_over(&self) -> bool {
        matches!(self.commit, Some(CommitState::Written | CommitState::Lost))
    }

    /// What is written for it. `dice` is drawn evenly from 0 to 1 by the caller, for jitter.
    pub fn ending(self, registration: Option<&Registration>, job: &ClaimedJob, ran: Duration, dice: f64) -> Ending {
        let options = registration.map(Registration::options);
        let backoff = options.map(|options| options.backoff).unwrap_or_default();
        let verdict = verdict(self.outcome, attempts_since(job.number(), self.journaled), job.most_attempts(), &backoff, dice);
        let keep = options.is_none_or(|options| options.retain != Retain::None);
        // What goes back charges nothing, and what was never charged may expire: not a job that has done a step.
        let goes_back =
            matches!(verdict, Verdict::Snooze(_) | Verdict::Park(_) | Verdict::Release) && (self.is_suspended || self.journaled.is_some());
        let begun = i16::from(goes_back && job.may_begin_within().is_some());
        Ending::new(verdict, job.attempt + begun, job.key)
            .kept(keep)
            .telling(job.tells())
            .after(ran)
            .with_output(self.output)
            .with_error(self.error)
            .waiting_for(self.signals)
            .beginning_anew(self.anew)
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    // Its drop may panic, with a value whose drop panics: that one is leaked.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text.unwrap_or_else(|| "with a value that is no text".to_owned())
}
