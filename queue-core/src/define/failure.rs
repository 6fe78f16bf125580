//! What a handler may end in besides an output: a failure, and what should follow.

use std::{error::Error, fmt, time::Duration};

use super::retry::{LONGEST_WAIT, Outcome};

/// What a handler returns.
pub type JobResult<T = ()> = Result<T, Failure>;

/// Why an attempt did not end in an output, and what should follow.
///
/// Any `std::error::Error`, `anyhow::Error` or text becomes a failure that is tried again after the type's backoff.
pub struct Failure {
    kind: FailureKind,
    error: Option<Box<dyn Error + Send + Sync>>,
}

/// What should follow a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Another try after the type's backoff.
    Retry,
    /// Another try after this wait.
    RetryIn(Duration),
    /// As [`FailureKind::RetryIn`], and meanwhile nothing begins under the limits that the job's type names.
    SlowDown(Duration),
    /// No more tries.
    Terminal,
    /// Not a failure: call again after this wait, without charging an attempt.
    Snooze(Duration),
}

impl FailureKind {
    /// What a failure of this kind is to [`verdict`](crate::verdict).
    #[doc(hidden)]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Retry => Outcome::Failed,
            Self::RetryIn(wait) | Self::SlowDown(wait) => Outcome::RetryIn(wait),
            Self::Terminal => Outcome::Terminal,
            Self::Snooze(wait) => Outcome::Snoozed(wait),
        }
    }
}

impl Failure {
    /// A failure that no further try will mend: the job becomes a dead letter at once.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Terminal, error: Some(error.into()) }
    }

    /// A failure to be tried again after `wait` instead of the type's backoff (a `Retry-After`, say). A wait of more than 100 years makes it
    /// terminal.
    pub fn retry_in(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::waiting(FailureKind::RetryIn(wait), wait, Some(error.into()))
    }

    /// Whoever this job asks wants fewer calls (a status 429, say): the job is tried again after `wait`, and until then nothing begins under the
    /// limits that its type names; if it names none, under that of its queue. Without any limit it is a [`Failure::retry_in`]. The attempt is charged
    /// like that of any other failure, so that a job that is refused for ever ends as a dead letter. A wait of more than 100 years makes it terminal.
    ///
    /// ```
    /// use queue_core::Failure;
    /// use std::time::Duration;
    ///
    /// let refused = Failure::slow_down(Duration::from_secs(30), "429: too many requests");
    /// assert_eq!(refused.to_string(), "429: too many requests");
    /// ```
    pub fn slow_down(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::waiting(FailureKind::SlowDown(wait), wait, Some(error.into()))
    }

    /// Not yet: the job is called again after `wait`, and this attempt is not counted. A wait of more than 100 years is a terminal failure.
    pub fn snooze(wait: Duration) -> Self {
        Self::waiting(FailureKind::Snooze(wait), wait, None)
    }

    /// Refuses a wait that is too long, and keeps the error.
    fn waiting(kind: FailureKind, wait: Duration, error: Option<Box<dyn Error + Send + Sync>>) -> Self {
        if wait <= LONGEST_WAIT {
            return Self { kind, error };
        }
        let about = Self { kind, error };
        Self::terminal(format!("no wait is longer than 100 years, and this one is {} days: {about}", wait.as_secs() / 86_400))
    }

    /// The same as the failure of one of `many` jobs that ran together: which of them it is about is not known, so it is terminal for none.
    pub(crate) fn of_one_among(&self, many: usize) -> Self {
        let kind = if self.kind == FailureKind::Terminal && many > 1 { FailureKind::Retry } else { self.kind };
        let error = self.error.as_ref().map(|_| among(&self.to_string(), many).into());
        Self { kind, error }
    }

    /// What went wrong, to be looked at more closely: `failure.error()?.downcast_ref::<queue_core::Error>()`. A snooze has none.
    pub fn error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.error.as_deref()
    }

    /// What should follow.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

/// The error of a job that ran in a batch of `many`.
pub(crate) fn among(error: &str, many: usize) -> String {
    if many > 1 { format!("{error} (it ran in a batch of {many} jobs)") } else { error.to_owned() }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { kind: FailureKind::Retry, error: Some(error.into()) }
    }
}

/// The error and its sources, one after the other.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(error) = &self.error else { return f.write_str("snoozed") };
        write!(f, "{error}")?;
        let mut source = error.source();
        while let Some(next) = source {
            write!(f, ": {next}")?;
            source = next.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("kind", &self.kind).field("error", &format_args!("{self}")).finish()
    }
}

/// `.terminal()?` on any result whose error no further try will mend.
pub trait TerminalExt<T> {
    /// Turns the error into a [`Failure::terminal`].
    ///
    /// # Errors
    /// The same as before, as a terminal failure.
    fn terminal(self) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> TerminalExt<T> for Result<T, E> {
    fn terminal(self) -> Result<T, Failure> {
        self.map_err(Failure::terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn a_wait_is_kept_up_to_100_years_and_is_a_terminal_failure_beyond() {
        let made: [fn(Duration) -> Failure; 3] =
            [Failure::snooze, |wait| Failure::retry_in(wait, "refused"), |wait| Failure::slow_down(wait, "refused")];
        for make in made {
            for days in [45, 60, 36_500] {
                let kind = make(days * DAY).kind();
                assert!(
                    matches!(kind, FailureKind::Snooze(wait) | FailureKind::RetryIn(wait) | FailureKind::SlowDown(wait) if wait == days * DAY),
                    "{kind:?}"
                );
            }
            for wait in [LONGEST_WAIT + Duration::from_nanos(1), Duration::MAX] {
                let failure = make(wait);
                assert!(failure.kind() == FailureKind::Terminal && failure.to_string().contains("longer than 100 years"), "{failure:?}");
            }
            let error = make(Duration::MAX).to_string();
            assert!(error.ends_with("refused") || error.ends_with("snoozed"), "the reason is kept: {error}");
        }
    }
}
