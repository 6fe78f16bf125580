//! A handler's own transaction that ends its job: what it writes, what it enqueues and the job's completion are one commit.
//!
//! This file hands the transaction out and keeps, for one attempt, what came of it. How a transaction is begun, how a verdict is written, and
//! what a commit came to whose answer was lost, is its [`Backend`](super::backend::Backend)'s part.

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
    backend::{CommitResult, OwnTransaction},
    report::Report,
};
use crate::{
    define::{Backoff, Ending, Failure, JobId, JobResult, Outcome, TerminalExt as _, check_output, verdict},
    error::Error,
    payload::encode_output,
};

/// A transaction that ends its job with its commit; from [`Context::begin`](crate::Context::begin).
///
/// It is a connection: `&mut *tx` for sqlx, `&mut tx` for an enqueue. [`complete`](Self::complete) and [`fail`](Self::fail) write the job's
/// verdict as the last statement, under the lease that the job was claimed with, and commit. Dropped, it is rolled back.
///
/// ```
/// use queue_core::{Context, Handler, Job, JobResult, job};
/// use serde::{Deserialize, Serialize};
///
/// /// Ships an order, once.
/// #[job(output = i64)]
/// #[derive(Serialize, Deserialize)]
/// struct Ship {
///     order: i64,
/// }
///
/// /// Tells the customer; enqueued by the same commit.
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct Tell {
///     order: i64,
/// }
///
/// impl Handler for Ship {
///     async fn run(self, cx: &Context) -> JobResult<i64> {
///         let mut tx = cx.begin().await?;
///         let update = "update orders set shipped = true where id = $1 returning parcel";
///         let Some(parcel) = sqlx::query_scalar(update).bind(self.order).fetch_optional(&mut *tx).await? else {
///             return Err(tx.fail("no such order").await); // a dead letter
///         };
///         Tell { order: self.order }.enqueue(&mut tx).await?;
///         tx.complete(parcel).await
///     }
/// }
/// ```
#[must_use = "dropped, it is rolled back: end it with `complete` or `fail`"]
pub struct JobTransaction {
    tx: OwnTransaction,
    begun: Arc<Begun>,
}

impl JobTransaction {
    pub(super) async fn begin(begun: &Arc<Begun>) -> Result<Self, Error> {
        if *begun.state.borrow() != CommitState::Open {
            return Err(begun.lost());
        }
        let (backend, job) = (Arc::clone(&begun.shared.backend), begun.fence.id);
        // In a task of its own, which is never dropped half-way: that would leave the pool a connection in the middle of a transaction.
        let beginning = begun.shared.handlers.spawn(async move { backend.begin(job).await });
        let tx = beginning.await.map_err(|error| Error::Database(sqlx::Error::Io(std::io::Error::other(error))))??;
        Ok(Self { tx, begun: Arc::clone(begun) })
    }

    /// Completes the job with this output, and commits; returns the output, for the handler to return.
    ///
    /// After this the job is completed, whatever the handler does: an error or a panic that follows is only logged.
    ///
    /// # Errors
    /// Nothing was written, and the job was not completed:
    /// - [`Error::LeaseLost`] when others have the job, or it is over already. Returned by the handler, it is no failure of the attempt: nothing
    ///   is written for that at all.
    /// - [`Error::Database`] for what the database refused, deferred constraints included, and for a connection that was lost before the commit.
    ///
    /// A connection that is lost in the commit is no error by itself: what the commit came to is looked up. Only if the database stays out of
    /// reach that is an error, and then the attempt counts as failed if, and only if, it turns out not to have been committed.
    pub async fn complete<T: Serialize + Send>(self, output: T) -> JobResult<T> {
        let text = encode_output(&output).terminal()?;
        let text = (text != "null").then_some(text);
        check_output(text.as_deref()).terminal()?;
        self.settle(Outcome::Ok, text, None).await?;
        Ok(output)
    }

    /// Completes a job of a transactional type with the output of its handler, as JSON text.
    pub(super) async fn complete_job(self, output: Option<String>) -> Result<(), Failure> {
        check_output(output.as_deref()).terminal()?;
        let settled = self.settle(Outcome::Ok, output, None).await;
        settled.map_err(|why| format!("the handler succeeded, but its transaction cannot be committed: {why}").into())
    }

    /// Makes the job a dead letter with this error, and commits what was written. Returns the failure, for the handler to return:
    /// `return Err(tx.fail("bounced").await)`.
    ///
    /// If that cannot be committed, it is another failure, as of [`complete`](Self::complete).
    #[must_use = "return it: `return Err(tx.fail(..).await)`"]
    pub async fn fail(self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        let failure = Failure::terminal(error);
        match self.settle(Outcome::Terminal, None, Some(failure.to_string())).await {
            Ok(()) => failure,
            Err(other) => other,
        }
    }

    /// Is not there: a job's transaction ends with [`complete`](Self::complete) or [`fail`](Self::fail), which commit.
    #[doc(hidden)]
    pub fn commit(self) -> Pending<Result<(), Error>>
    where
        for<'a> &'a Self: ByCommit,
    {
        drop(self);
        pending()
    }

    /// Is not there either: dropped, the transaction is rolled back.
    #[doc(hidden)]
    pub fn rollback(self) -> Pending<Result<(), Error>>
    where
        for<'a> &'a Self: ByRollback,
    {
        drop(self);
        pending()
    }

    async fn settle(self, outcome: Outcome, output: Option<String>, error: Option<String>) -> Result<(), Failure> {
        let Self { tx, begun } = self;
        // Under the lease, which has the job no longer once this is committed.
        begun.report.flush(LAST_REPORT).await;
        if !begun.move_on(CommitState::Open, CommitState::Committing) {
            return Err(begun.lost().into());
        }
        // Only one gets here at a time.
        *begun.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let (fence, backend, answer) = (begun.fence, Arc::clone(&begun.shared.backend), Answer(Arc::clone(&begun)));
        let number = fence.attempt.unsigned_abs().into();
        // Neither outcome is tried again, so neither the attempts left nor the backoff counts.
        let ending = Ending::new(verdict(outcome, number, number, &Backoff::DEFAULT, 0.0), fence.attempt, fence.key)
            .kept(fence.keep)
            .telling(fence.tells)
            .after(fence.since.elapsed())
            .with_output(output)
            .with_error(error);
        // Goes on when this future is dropped by a timeout: the attempt waits for what comes of it.
        let committing = begun.shared.handlers.spawn(async move {
            let result = backend.commit(tx, fence, ending).await;
            answer.0.move_on(CommitState::Committing, CommitState::of(&result));
            result
        });
        match committing.await {
            Ok(CommitResult::Written) => Ok(()),
            Ok(CommitResult::Lost) => Err(begun.lost().into()),
            Ok(CommitResult::Undone(failure) | CommitResult::Unknown(failure)) => Err(failure),
            Err(error) => Err(error.into()),
        }
    }
}

/// What has it can be called; nothing has.
#[diagnostic::on_unimplemented(
    message = "a job's transaction is not ended with `commit`",
    label = "say `complete` or `fail`",
    note = "`tx.complete(output).await` writes the job's completion, commits, and gives what the handler returns: it is its last expression",
    note = "`Err(tx.fail(\"why\").await)` commits what was written and makes the job a dead letter"
)]
pub trait ByCommit {}

/// What has it can be called; nothing has.
#[diagnostic::on_unimplemented(
    message = "a job's transaction is not ended with `rollback`",
    label = "drop it",
    note = "dropped, it is rolled back: `drop(tx)`, or return an error and the attempt is tried again"
)]
pub trait ByRollback {}

/// The failure of a handler that returned `Ok` over its own transaction.
pub(crate) const NOT_COMPLETED: &str =
    "the handler began a transaction and did not complete it, so what it wrote is rolled back; return what `tx.complete(..)` returns";

/// So long a commit waits until what the handler reported is written.
const LAST_REPORT: Duration = Duration::from_secs(1);

impl Deref for JobTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.tx {
            OwnTransaction::Pooled(tx) => tx,
            OwnTransaction::Lent(tx) => tx,
        }
    }
}

impl DerefMut for JobTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.tx {
            OwnTransaction::Pooled(tx) => tx,
            OwnTransaction::Lent(tx) => tx,
        }
    }
}

impl fmt::Debug for JobTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTransaction").field("job", &self.begun.fence.id).finish_non_exhaustive()
    }
}

/// The transactions of one attempt.
#[derive(Debug)]
pub(crate) struct Begun {
    fence: Fence,
    shared: Arc<Shared>,
    report: Arc<Report>,
    state: watch::Sender<CommitState>,
    /// What the last commit says of the job.
    said: Mutex<Option<Outcome>>,
}

/// How far an attempt is with its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitState {
    /// Nothing has been committed.
    Open,
    /// A commit is on its way.
    Committing,
    /// The verdict has been committed.
    Written,
    /// Others have the job.
    Lost,
    /// Nobody knows what became of a commit.
    Unknown,
    /// The handler has ended.
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

impl Begun {
    pub(super) fn new(fence: Fence, shared: Arc<Shared>, report: Arc<Report>) -> Self {
        Self { fence, shared, report, state: watch::Sender::new(CommitState::Open), said: Mutex::default() }
    }

    /// Its job, and how many connections the pool has.
    pub(super) fn waits_for(&self) -> (JobId, u32) {
        (self.fence.id, self.shared.pool.size())
    }

    /// Once the handler has ended: waits for a commit that is on its way, refuses any later one, and says how far it came.
    pub(crate) async fn close(&self, patience: Duration) -> CommitState {
        let until = tokio::time::Instant::now() + patience;
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

    /// What the last commit says of the job, if there was one.
    pub(crate) fn said(&self) -> Option<Outcome> {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_on(&self, from: CommitState, to: CommitState) -> bool {
        self.state.send_if_modified(|state| {
            let moves = *state == from;
            if moves {
                *state = to;
            }
            moves
        })
    }

    fn lost(&self) -> Error {
        Error::LeaseLost { job: self.fence.id }
    }
}

/// A commit that ends without an answer, with its runtime for one, leaves its attempt in doubt, not waiting.
struct Answer(Arc<Begun>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.move_on(CommitState::Committing, CommitState::Unknown);
    }
}
