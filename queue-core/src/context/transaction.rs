//! Transactions in which a handler ends its job. The handler's writes, its enqueues and the job's completion commit together.
//!
//! This module tracks the transactions of one attempt. The attempt's [`Backend`](super::backend::Backend) begins the transactions, writes
//! the verdict, and determines the result of commits whose response was lost.

use std::{
    error::Error as StdError,
    fmt,
    future::{Pending, pending},
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use sqlx::PgConnection;
use tokio::{sync::watch, time::timeout_at};

use super::{
    Fence, Shared,
    backend::{CommitResult, OwnedTransaction},
    report::Report,
};
use crate::{
    define::{Backoff, Ending, Failure, JobId, JobResult, Outcome, TerminalExt as _, check_output, verdict},
    error::Error,
    payload::encode_output,
};

/// Transaction whose commit ends the job. Returned by [`Context::begin`](crate::Context::begin).
///
/// Use the transaction as a connection: `&mut *tx` for sqlx, `&mut tx` for an enqueue. [`complete`](Self::complete) and
/// [`fail`](Self::fail) write the job's verdict as the last statement, fenced by the job's lease, and then commit. Dropping the
/// transaction rolls it back.
///
/// ```
/// use queue_core::{Context, Handler, Job, JobResult, job};
/// use serde::{Deserialize, Serialize};
///
/// /// Ships an order, exactly once.
/// #[job(output = i64)]
/// #[derive(Serialize, Deserialize)]
/// struct Ship {
///     order: i64,
/// }
///
/// /// Notifies the customer; enqueued by the same commit.
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct NotifyCustomer {
///     order: i64,
/// }
///
/// impl Handler for Ship {
///     async fn run(self, cx: &Context) -> JobResult<i64> {
///         let mut tx = cx.begin().await?;
///         let update = "update orders set shipped = true where id = $1 returning parcel";
///         let Some(parcel) = sqlx::query_scalar(update).bind(self.order).fetch_optional(&mut *tx).await? else {
///             return Err(tx.fail("no such order").await); // the job becomes a dead letter
///         };
///         NotifyCustomer { order: self.order }.enqueue(&mut tx).await?;
///         tx.complete(parcel).await
///     }
/// }
/// ```
#[must_use = "dropping it rolls it back: end it with `complete` or `fail`"]
pub struct JobTransaction {
    tx: OwnedTransaction,
    tracker: Arc<TransactionTracker>,
}

impl JobTransaction {
    pub(super) async fn begin(tracker: &Arc<TransactionTracker>) -> Result<Self, Error> {
        if *tracker.state.borrow() != CommitState::Open {
            return Err(tracker.lease_lost());
        }
        let (backend, job) = (Arc::clone(&tracker.shared.backend), tracker.fence.id);
        // The transaction begins in a separate task that is never cancelled. If the task were cancelled, its connection would return to
        // the pool with an open transaction.
        let beginning = tracker.shared.handlers.spawn(async move { backend.begin(job).await });
        let tx = beginning.await.map_err(|error| Error::Database(sqlx::Error::Io(std::io::Error::other(error))))??;
        Ok(Self { tx, tracker: Arc::clone(tracker) })
    }

    /// Completes the job with `output` and commits. Returns `output` for the handler to return.
    ///
    /// An error or panic in the handler after the commit is only logged, because the job is already completed.
    ///
    /// # Errors
    /// If this method returns one of the following errors, the job is not completed and nothing was written:
    /// - [`Error::LeaseLost`] if another worker has the job or the job has already ended. If the handler returns this error, the attempt
    ///   does not fail and nothing is written.
    /// - [`Error::Database`] if the database rejected a statement or the commit (for example because of a deferred constraint), or the
    ///   connection was lost before the commit.
    /// - A terminal failure if `output` cannot be encoded or is too long to store.
    ///
    /// Losing the connection during the commit is not an error by itself, because the worker looks up the result of the commit. If the
    /// database stays unreachable, this method returns an error although the result is unknown. The attempt then fails only if the commit
    /// did not succeed.
    pub async fn complete<T: Serialize + Send>(self, output: T) -> JobResult<T> {
        let text = encode_output(&output).terminal()?;
        let text = (text != "null").then_some(text);
        check_output(text.as_deref()).terminal()?;
        self.settle(Outcome::Ok, text, None).await?;
        Ok(output)
    }

    /// Completes a job of a transactional type. `output` is the handler's output as JSON text.
    pub(super) async fn complete_job(self, output: Option<String>) -> Result<(), Failure> {
        check_output(output.as_deref()).terminal()?;
        let settled = self.settle(Outcome::Ok, output, None).await;
        settled.map_err(|why| format!("the handler succeeded, but its transaction cannot be committed: {why}").into())
    }

    /// Makes the job a dead letter with `error` and commits the transaction's writes. Returns the failure, which the handler must return:
    /// `return Err(tx.fail("bounced").await)`.
    ///
    /// If the commit fails, the returned failure describes the commit error; see [`complete`](Self::complete).
    #[must_use = "return it: `return Err(tx.fail(..).await)`"]
    pub async fn fail(self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        let failure = Failure::terminal(error);
        match self.settle(Outcome::Terminal, None, Some(failure.to_string())).await {
            Ok(()) => failure,
            Err(other) => other,
        }
    }

    /// Not available. A job's transaction ends with [`complete`](Self::complete) or [`fail`](Self::fail), which commit the transaction.
    #[doc(hidden)]
    pub fn commit(self) -> Pending<Result<(), Error>>
    where
        for<'a> &'a Self: ByCommit,
    {
        drop(self);
        pending()
    }

    /// Not available. Dropping the transaction rolls it back.
    #[doc(hidden)]
    pub fn rollback(self) -> Pending<Result<(), Error>>
    where
        for<'a> &'a Self: ByRollback,
    {
        drop(self);
        pending()
    }

    async fn settle(self, outcome: Outcome, output: Option<String>, error: Option<String>) -> Result<(), Failure> {
        let Self { tx, tracker } = self;
        // Reports must be written before the commit. They are fenced by the lease, which no longer lists the job after the commit.
        tracker.report.flush(MAX_REPORT_WAIT).await;
        if !tracker.advance(CommitState::Open, CommitState::Committing) {
            return Err(tracker.lease_lost().into());
        }
        // `advance` succeeds for one caller at a time, so no other caller writes the outcome.
        *tracker.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let (fence, backend, guard) = (tracker.fence, Arc::clone(&tracker.shared.backend), CommitGuard(Arc::clone(&tracker)));
        let number = fence.attempt.unsigned_abs().into();
        // The outcome is `Ok` or `Terminal`. Neither leads to a retry, so the attempt numbers and the backoff have no effect.
        let ending = Ending::new(verdict(outcome, number, number, &Backoff::DEFAULT, 0.0), fence.attempt, fence.key)
            .with_record(fence.keep)
            .with_dependents(fence.dependents)
            .with_duration(fence.since.elapsed())
            .with_output(output)
            .with_error(error);
        // The commit continues even if a timeout drops this future. The attempt waits for the result of the commit.
        let committing = tracker.shared.handlers.spawn(async move {
            let result = backend.commit(tx, fence, ending).await;
            guard.0.advance(CommitState::Committing, CommitState::of(&result));
            result
        });
        match committing.await {
            Ok(CommitResult::Written) => Ok(()),
            Ok(CommitResult::Lost) => Err(tracker.lease_lost().into()),
            Ok(CommitResult::Undone(failure) | CommitResult::Unknown(failure)) => Err(failure),
            Err(error) => Err(error.into()),
        }
    }
}

/// Bound that no type satisfies, so that every call fails to compile with the message below.
#[diagnostic::on_unimplemented(
    message = "a job's transaction does not end with `commit`",
    label = "use `complete` or `fail`",
    note = "`tx.complete(output).await` writes the job's completion, commits and returns the handler's result: make it the last expression",
    note = "`Err(tx.fail(\"why\").await)` commits the other writes and makes the job a dead letter"
)]
pub trait ByCommit {}

/// Bound that no type satisfies, so that every call fails to compile with the message below.
#[diagnostic::on_unimplemented(
    message = "a job's transaction does not end with `rollback`",
    label = "drop it",
    note = "dropping it rolls it back: `drop(tx)`, or return an error to retry the attempt"
)]
pub trait ByRollback {}

/// Error text for a handler that returned `Ok` without completing its transaction.
pub(crate) const NOT_COMPLETED: &str =
    "the handler began a transaction without completing it, so its writes were rolled back; return the result of `tx.complete(..)`";

/// Maximum time that a commit waits for the attempt's pending reports to be written.
const MAX_REPORT_WAIT: Duration = Duration::from_secs(1);

impl Deref for JobTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.tx {
            OwnedTransaction::Pooled(tx) => tx,
            OwnedTransaction::Lent(tx) => tx,
        }
    }
}

impl DerefMut for JobTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.tx {
            OwnedTransaction::Pooled(tx) => tx,
            OwnedTransaction::Lent(tx) => tx,
        }
    }
}

impl fmt::Debug for JobTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTransaction").field("job", &self.tracker.fence.id).finish_non_exhaustive()
    }
}

/// Transaction state of one attempt.
#[derive(Debug)]
pub(crate) struct TransactionTracker {
    fence: Fence,
    shared: Arc<Shared>,
    report: Arc<Report>,
    state: watch::Sender<CommitState>,
    /// Outcome that the latest commit wrote or tried to write. `None` before the first commit.
    outcome: Mutex<Option<Outcome>>,
}

/// Commit state of an attempt's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitState {
    /// Nothing has been committed.
    Open,
    /// A commit is in progress.
    Committing,
    /// The verdict has been committed.
    Written,
    /// The commit was rejected because the lease was lost.
    Lost,
    /// The result of the commit is unknown, because the database was unreachable or the commit task did not finish.
    Unknown,
    /// The handler has ended, so further commits are rejected.
    Closed,
}

impl CommitState {
    fn of(result: &CommitResult) -> Self {
        match result {
            CommitResult::Written => Self::Written,
            CommitResult::Lost => Self::Lost,
            CommitResult::Undone(_) => Self::Open,
            CommitResult::Unknown(_) => Self::Unknown,
        }
    }
}

impl TransactionTracker {
    pub(super) fn new(fence: Fence, shared: Arc<Shared>, report: Arc<Report>) -> Self {
        Self { fence, shared, report, state: watch::Sender::new(CommitState::Open), outcome: Mutex::default() }
    }

    /// Returns the job id and the pool size, for log events.
    pub(super) fn job_and_pool_size(&self) -> (JobId, u32) {
        (self.fence.id, self.shared.pool.size())
    }

    /// Closes the tracker after the handler has ended. Waits at most `timeout` for a commit in progress, and rejects later commits.
    /// Returns the state before closing. If the commit is still in progress after the timeout, the state stays `Committing`.
    pub(crate) async fn close(&self, timeout: Duration) -> CommitState {
        let until = tokio::time::Instant::now() + timeout;
        let mut state = self.state.subscribe();
        loop {
            let in_time = timeout_at(until, state.wait_for(|state| *state != CommitState::Committing)).await.is_ok();
            let mut last = CommitState::Open;
            let closed = self.state.send_if_modified(|state| {
                last = *state;
                let ended = *state != CommitState::Committing;
                if ended {
                    *state = CommitState::Closed;
                }
                ended
            });
            if closed || !in_time {
                return last;
            }
        }
    }

    /// Returns the outcome that the latest commit wrote or tried to write, or `None` before the first commit.
    pub(crate) fn committed_outcome(&self) -> Option<Outcome> {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, from: CommitState, to: CommitState) -> bool {
        self.state.send_if_modified(|state| {
            let matches = *state == from;
            if matches {
                *state = to;
            }
            matches
        })
    }

    fn lease_lost(&self) -> Error {
        Error::LeaseLost { job: self.fence.id }
    }
}

/// Guard that sets the state to [`CommitState::Unknown`] on drop, unless a result was recorded. Without the guard, the attempt would wait
/// for a commit task that panicked or was aborted.
struct CommitGuard(Arc<TransactionTracker>);

impl Drop for CommitGuard {
    fn drop(&mut self) {
        self.0.advance(CommitState::Committing, CommitState::Unknown);
    }
}
