//! What a job is to its author: a payload type, and a handler for it.

use std::{borrow::Cow, error::Error, fmt, future::Future, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    context::Context,
    enqueue::{Enqueue, EnqueueAll, EnqueueWhenFree, IntoConnection, TryEnqueue},
    options::Options,
    retry::Outcome,
    unique::UniqueKey,
};

/// A payload type that can be enqueued. Written by [`#[job]`](crate::job), seldom by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job type",
    note = "write `#[job]` above the struct, together with `#[derive(Serialize, Deserialize)]`"
)]
pub trait Job: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// What the handler returns, kept with the completed job. `()` unless `output = ..` says otherwise.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The options given to `#[job(..)]`.
    const OPTIONS: Options;

    /// The ordering key that this job is enqueued under, unless another is given to the builder. From `key = ..` or `fifo`; `None` without them.
    ///
    /// Jobs of one key in one queue, of whatever types, run one at a time, in the order in which their enqueues committed, over any number of
    /// workers and across retries. The empty key is that of `fifo`: of the whole queue.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The key that the fields named in `#[job(unique(fields(..)))]` make.
    fn unique_key(&self) -> UniqueKey {
        UniqueKey::none()
    }

    /// Enqueues this job on a pool, a connection, or in your transaction; in the last case it exists if and only if that commits.
    ///
    /// Nothing happens until the builder is awaited; see [`Enqueue`] for what can be said before that.
    ///
    /// # Errors
    /// The payload cannot be stored exactly (NUL, NaN, too large, too deep), an option is out of range, the queue is bounded and full
    /// ([`Error::QueueFull`](crate::Error::QueueFull)), the schema is missing, or the database failed. After a database error the surrounding transaction can only be rolled back.
    fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Enqueue<'c, Self> {
        Enqueue::new(self, on)
    }

    /// As [`enqueue`](Job::enqueue), but if the queue is full it is `None`, and a transaction of yours is as it was.
    ///
    /// # Errors
    /// As [`enqueue`](Job::enqueue), but for [`Error::QueueFull`](crate::Error::QueueFull).
    fn try_enqueue<'c>(self, on: impl IntoConnection<'c>) -> TryEnqueue<'c, Self> {
        TryEnqueue::new(self, on)
    }

    /// As [`enqueue`](Job::enqueue), but if the queue is full it waits until it is not, up to `timeout`. On a pool only: whoever waits inside a
    /// transaction holds up those that would make room.
    ///
    /// # Errors
    /// As [`enqueue`](Job::enqueue); [`Error::QueueFull`](crate::Error::QueueFull) when there was no room in time.
    fn enqueue_when_free(self, pool: &sqlx::PgPool, timeout: Duration) -> EnqueueWhenFree<'_, Self> {
        EnqueueWhenFree::new(self, pool, timeout)
    }

    /// Enqueues any number of jobs of this type, from an iterator, in constant memory and in the iterator's order.
    ///
    /// Nothing happens until the builder is awaited; see [`EnqueueAll`] for what can be said before that. Jobs of several types go into a
    /// [`Batch`](crate::Batch).
    ///
    /// # Errors
    /// As [`enqueue`](Job::enqueue); [`Error::OneOfMany`](crate::Error::OneOfMany) says which job it is about. No job is enqueued then,
    /// provided that a transaction of yours is rolled back.
    fn enqueue_all<'c, I>(jobs: I, on: impl IntoConnection<'c>) -> EnqueueAll<'c, Self>
    where
        I: IntoIterator<Item = Self>,
        I::IntoIter: Send + 'c,
    {
        EnqueueAll::new(jobs.into_iter(), on)
    }
}

/// The code that runs a job.
///
/// `run` takes the payload by value. Its future may be dropped at any `await` (timeout, shutdown); what must not be half-done belongs
/// in a database transaction.
#[diagnostic::on_unimplemented(
    message = "the job `{Self}` has no handler",
    label = "no `impl Handler` for this job",
    note = "write `impl Handler for {Self} {{ async fn run(self, cx: &Context) -> JobResult<..> {{ .. }} }}`",
    note = "if its handler lives in another crate, say so: `#[job(send_only)]`"
)]
pub trait Handler: Job {
    /// Does the work of one attempt. Any `?` is a retry; see [`Failure`] for the rest.
    fn run(self, cx: &Context) -> impl Future<Output = JobResult<Self::Output>> + Send;
}

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
            Self::RetryIn(wait) => Outcome::RetryIn(wait),
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

    /// A failure to be tried again after `wait` instead of the type's backoff (a `Retry-After`, say).
    pub fn retry_in(wait: Duration, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::RetryIn(wait), error: Some(error.into()) }
    }

    /// Not yet: the job is called again after `wait`, and this attempt is not counted.
    pub fn snooze(wait: Duration) -> Self {
        Self { kind: FailureKind::Snooze(wait), error: None }
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
