//! Handler failures and their consequences.

use std::{error::Error, fmt, time::Duration};

use super::retry::{MAX_WAIT, Outcome};

/// Result of a handler: its output or a [`Failure`]. A handler returns one of the following results:
///
/// | result | effect on the job |
/// |---|---|
/// | `Ok(())`, or `Ok(output)` for a type with `output = T` | completed |
/// | an error, with `?` or as `Err("text".into())` | retried after the type's backoff, up to `max_attempts` |
/// | [`Failure::retry_in`] | retried after the given delay, up to `max_attempts` |
/// | [`Failure::slow_down`], for an overloaded service | retried as with `retry_in`; until then, no job starts under the type's limits |
/// | [`Failure::terminal`], or [`.terminal()?`](TerminalExt::terminal) | dead letter, without further attempts |
/// | [`Failure::snooze`] | runs again after the given delay; not a failed attempt |
///
/// ```
/// use queue_core::{Context, Failure, Handler, JobResult, TerminalExt as _, job};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// /// Fetches a page and returns its size in bytes.
/// #[job(output = usize, max_attempts = 5)]
/// #[derive(Serialize, Deserialize)]
/// struct Fetch {
///     address: String,
/// }
///
/// # async fn get(to: std::net::SocketAddr) -> Result<(u16, Vec<u8>), std::io::Error> { Ok((200, vec![])) }
/// impl Handler for Fetch {
///     async fn run(self, _: &Context) -> JobResult<usize> {
///         let address = self.address.parse().terminal()?; // an invalid address stays invalid: dead letter
///         let (status, body) = get(address).await?; // retried after the backoff
///         match status {
///             200 => Ok(body.len()),
///             202 => Err(Failure::snooze(Duration::from_secs(5))), // not ready yet
///             503 => Err(Failure::retry_in(Duration::from_mins(1), "unavailable")),
///             status => Err(format!("status {status}").into()),
///         }
///     }
/// }
/// ```
pub type JobResult<T = ()> = Result<T, Failure>;

/// Failure of an attempt, and the consequence for the job.
///
/// Any `std::error::Error`, `anyhow::Error` or string converts into a failure after which the job is retried with the type's backoff. The
/// constructors create failures with other consequences. [`kind`](Self::kind) returns the consequence, and [`error`](Self::error) the
/// cause. The text of the error and its sources is stored with the job, so it must not contain secrets.
///
/// ```
/// use queue_core::{Failure, FailureKind, JobResult};
/// use std::time::Duration;
///
/// fn check(status: u16) -> JobResult {
///     match status {
///         200 => Ok(()),
///         404 => Err(Failure::terminal("no such address")), // dead letter
///         503 => Err(Failure::retry_in(Duration::from_secs(60), "service unavailable")),
///         _ => Err("unexpected status".into()), // retried after the type's backoff
///     }
/// }
/// assert_eq!(check(404).unwrap_err().kind(), FailureKind::Terminal);
/// ```
pub struct Failure {
    kind: FailureKind,
    error: Option<Box<dyn Error + Send + Sync>>,
}

/// Consequence of a [`Failure`].
///
/// ```
/// use queue_core::{Failure, FailureKind};
///
/// # fn example(failure: &Failure) {
/// match failure.kind() {
///     FailureKind::Terminal => println!("dead letter: {failure}"),
///     FailureKind::RetryIn(delay) | FailureKind::Snooze(delay) => println!("runs again after {delay:?}"),
///     kind => println!("{kind:?}: {failure}"),
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The job is retried after the type's backoff.
    Retry,
    /// The job is retried after the given delay.
    RetryIn(Duration),
    /// The job is retried after the given delay, as with [`FailureKind::RetryIn`]. During the delay, the limits of the failed job's type
    /// admit no job; see [`Failure::slow_down`].
    SlowDown(Duration),
    /// The job is not retried and becomes a dead letter.
    Terminal,
    /// The attempt did not fail. The job runs again after the given delay, and no attempt is charged.
    Snooze(Duration),
}

impl FailureKind {
    /// Returns the outcome of an attempt with this kind of failure, as input for [`verdict`](crate::options::verdict).
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
    /// Creates a terminal failure. The job is not retried and becomes a dead letter immediately.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Terminal, error: Some(error.into()) }
    }

    /// Creates a failure with a retry delay of `wait` instead of the type's backoff, for example the delay in a `Retry-After` header. If
    /// `wait` exceeds 100 years, the failure is terminal.
    pub fn retry_in(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_delay(FailureKind::RetryIn(wait), wait, Some(error.into()))
    }

    /// Creates a failure for a call that a service has rate-limited, for example with status 429. The job is retried after `wait`.
    /// Until then, the limits of its job type admit no job. If the type has no limits, the limit of its queue admits no job. Without any
    /// limit, the failure has the same effect as [`Failure::retry_in`].
    ///
    /// The attempt is charged, so a job becomes a dead letter if the service rejects its call in every attempt. If `wait` exceeds 100
    /// years, the failure is terminal.
    ///
    /// ```
    /// use queue_core::Failure;
    /// use std::time::Duration;
    ///
    /// let refused = Failure::slow_down(Duration::from_secs(30), "429: too many requests");
    /// assert_eq!(refused.to_string(), "429: too many requests");
    /// ```
    pub fn slow_down(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_delay(FailureKind::SlowDown(wait), wait, Some(error.into()))
    }

    /// Creates a snooze: the job runs again after `wait`, and the attempt is not charged. If `wait` exceeds 100 years, the failure is
    /// terminal.
    pub fn snooze(wait: Duration) -> Self {
        Self::with_delay(FailureKind::Snooze(wait), wait, None)
    }

    /// Creates a failure with a delay. If `wait` exceeds [`MAX_WAIT`], the failure is terminal and keeps the error text.
    fn with_delay(kind: FailureKind, wait: Duration, error: Option<Box<dyn Error + Send + Sync>>) -> Self {
        if wait <= MAX_WAIT {
            return Self { kind, error };
        }
        let about = Self { kind, error };
        Self::terminal(format!("the delay of {} days is longer than 100 years: {about}", wait.as_secs() / 86_400))
    }

    /// Returns the failure for one of `many` jobs that ran in one batch. If `many` exceeds 1, the failure is never terminal, because the
    /// job that caused the failure is unknown.
    pub(crate) fn for_batch_member(&self, many: usize) -> Self {
        let kind = if self.kind == FailureKind::Terminal && many > 1 { FailureKind::Retry } else { self.kind };
        let error = self.error.as_ref().map(|_| batch_error(&self.to_string(), many).into());
        Self { kind, error }
    }

    /// Returns the error, for example for `failure.error()?.downcast_ref::<queue_core::Error>()`. A snooze has no error.
    pub fn error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.error.as_deref()
    }

    /// Returns the consequence of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

/// Formats the error of a job that ran in a batch of `many` jobs.
pub(crate) fn batch_error(error: &str, many: usize) -> String {
    if many > 1 { format!("{error} (it ran in a batch of {many} jobs)") } else { error.to_owned() }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { kind: FailureKind::Retry, error: Some(error.into()) }
    }
}

/// Writes the error and its chain of sources, separated by colons.
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

/// Adds the method `terminal` to `Result`, for errors that a retry cannot fix: `.terminal()?`.
///
/// ```
/// use queue_core::{FailureKind, JobResult, TerminalExt as _};
///
/// fn parse(number: &str) -> JobResult<u32> {
///     number.parse::<u32>().terminal()
/// }
/// assert_eq!(parse("seven").unwrap_err().kind(), FailureKind::Terminal);
/// ```
pub trait TerminalExt<T> {
    /// Converts the error into a terminal failure; see [`Failure::terminal`].
    ///
    /// # Errors
    /// Returns the error of `self` as a terminal failure.
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
            for wait in [MAX_WAIT + Duration::from_nanos(1), Duration::MAX] {
                let failure = make(wait);
                assert!(failure.kind() == FailureKind::Terminal && failure.to_string().contains("longer than 100 years"), "{failure:?}");
            }
            let error = make(Duration::MAX).to_string();
            assert!(error.ends_with("refused") || error.ends_with("snoozed"), "the reason is kept: {error}");
        }
    }
}
