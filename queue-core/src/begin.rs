//! A handler's own transaction that ends its job: what it writes, what it enqueues and the job's completion are one commit.
//!
//! This file hands the transaction out and keeps, for one attempt, what came of it. How a verdict is written, and what a commit whose answer
//! was lost came to, is the worker's part ([`Commit`]).

use std::{
    error::Error as StdError,
    fmt,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;
use sqlx::{PgConnection, Postgres, Transaction};
#[cfg(feature = "testing")]
use tokio::sync::OwnedMutexGuard;
use tokio::{sync::watch, time::timeout_at};
use uuid::Uuid;

#[cfg(feature = "testing")]
use crate::testing::Rig;
use crate::{
    context::Shared,
    error::Error,
    job::{Failure, JobResult, TerminalExt as _},
    record::JobId,
    report::Report,
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
    tx: Own,
    begun: Arc<Begun>,
}

impl JobTransaction {
    pub(crate) async fn begin(begun: &Arc<Begun>) -> Result<Self, Error> {
        if *begun.stage.borrow() != Stage::Open {
            return Err(begun.lost());
        }
        let pool = begun.shared.pool.clone();
        // In a task of its own, which is never dropped half-way: that would leave the pool a connection in the middle of a transaction.
        let beginning = begun.shared.handlers.spawn(async move { pool.begin_with(BEGIN).await });
        let tx = beginning.await.map_err(|error| Error::Database(sqlx::Error::Io(std::io::Error::other(error))))??;
        Ok(Self { tx: Own::Pooled(tx), begun: Arc::clone(begun) })
    }

    /// Of a test's transaction, which the verdict is written in later: see [`crate::testing`].
    #[cfg(feature = "testing")]
    pub(crate) async fn lend(begun: &Arc<Begun>, rig: &Rig) -> Result<Self, Error> {
        if *begun.stage.borrow() != Stage::Open {
            return Err(begun.lost());
        }
        Ok(Self { tx: Own::Lent(rig.lend(begun.fence.id).await?), begun: Arc::clone(begun) })
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
        let text = serde_json::to_string(&output).terminal()?;
        self.settle((text != "null").then_some(text), None).await?;
        Ok(output)
    }

    /// Makes the job a dead letter with this error, and commits what was written. Returns the failure, for the handler to return:
    /// `return Err(tx.fail("bounced").await)`.
    ///
    /// If that cannot be committed, it is another failure, as of [`complete`](Self::complete).
    #[must_use = "return it: `return Err(tx.fail(..).await)`"]
    pub async fn fail(self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        let failure = Failure::terminal(error);
        match self.settle(None, Some(failure.to_string())).await {
            Ok(()) => failure,
            Err(other) => other,
        }
    }

    async fn settle(self, output: Option<String>, error: Option<String>) -> Result<(), Failure> {
        let Self { tx, begun } = self;
        // Under the lease, which has the job no longer once this is committed.
        begun.report.flush(LAST_REPORT).await;
        if !begun.move_on(Stage::Open, Stage::Committing) {
            return Err(begun.lost().into());
        }
        let (said, answer) = (Said { fence: begun.fence, output, error }, Answer(Arc::clone(&begun)));
        let shared = Arc::clone(&begun.shared);
        #[cfg_attr(not(feature = "testing"), expect(clippy::infallible_destructuring_match, reason = "tests have another kind"))]
        let tx = match tx {
            Own::Pooled(tx) => tx,
            #[cfg(feature = "testing")]
            Own::Lent(mut lent) => {
                let ruling = shared.desk.rig().ok_or_else(|| begun.lost())?.keep(&mut lent, said).await;
                answer.0.move_on(Stage::Committing, Stage::of(&ruling));
                return match ruling {
                    Ruling::Undone(failure) => Err(failure),
                    _ => Ok(()),
                };
            }
        };
        // Goes on when this future is dropped by a timeout: the attempt waits for what comes of it.
        let committing = begun.shared.handlers.spawn(async move {
            let ruling = (shared.commit)(Arc::clone(&shared), tx, said).await;
            answer.0.move_on(Stage::Committing, Stage::of(&ruling));
            ruling
        });
        match committing.await {
            Ok(Ruling::Written) => Ok(()),
            Ok(Ruling::Lost) => Err(begun.lost().into()),
            Ok(Ruling::Undone(failure) | Ruling::Unknown(failure)) => Err(failure),
            Err(error) => Err(error.into()),
        }
    }
}

/// Where the transaction is from.
enum Own {
    Pooled(Transaction<'static, Postgres>),
    #[cfg(feature = "testing")]
    Lent(OwnedMutexGuard<Transaction<'static, Postgres>>),
}

/// The verdict of a job whose entry in `ready` this transaction holds.
#[doc(hidden)]
pub const FINISH_ONE: &str = include_str!("../sql/finish_one.sql");

/// The failure of a handler that returned `Ok` over its own transaction.
#[doc(hidden)]
pub const NOT_COMPLETED: &str =
    "the handler began a transaction and did not complete it, so what it wrote is rolled back; return what `tx.complete(..)` returns";

/// So long a commit waits until what the handler reported is written.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// Under a stricter isolation, every settle beside this one in the same lease would be a conflict.
const BEGIN: &str = "begin isolation level read committed read write";

impl Deref for JobTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.tx {
            Own::Pooled(tx) => tx,
            #[cfg(feature = "testing")]
            Own::Lent(tx) => tx,
        }
    }
}

impl DerefMut for JobTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.tx {
            Own::Pooled(tx) => tx,
            #[cfg(feature = "testing")]
            Own::Lent(tx) => tx,
        }
    }
}

impl fmt::Debug for JobTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTransaction").field("job", &self.begun.fence.id).finish_non_exhaustive()
    }
}

/// What the verdict of an attempt is written under.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Fence {
    pub token: Uuid,
    pub id: JobId,
    pub lane: i64,
    pub attempt: i16,
    pub crashes: i16,
    /// Whether a completed job leaves a record.
    pub keep: bool,
    /// The ordering key that goes on without the job once it is completed, and whether it does once the job is dead.
    pub key: Option<(i64, bool)>,
    pub since: Instant,
}

/// What a handler said with its transaction: an error for a dead letter, else it completed.
#[doc(hidden)]
#[derive(Debug)]
pub struct Said {
    pub fence: Fence,
    pub output: Option<String>,
    pub error: Option<String>,
}

/// Writes a verdict as the last statement of the transaction, commits, and finds out what came of it.
#[doc(hidden)]
pub type Commit = fn(Arc<Shared>, Transaction<'static, Postgres>, Said) -> Pin<Box<dyn Future<Output = Ruling> + Send>>;

/// What came of a commit.
#[doc(hidden)]
#[derive(Debug)]
pub enum Ruling {
    /// It happened.
    Written,
    /// It did not: the lease does not have the job any more.
    Lost,
    /// It did not, for another reason; the lease still has the job.
    Undone(Failure),
    /// Nobody could be asked.
    Unknown(Failure),
}

/// The transactions of one attempt.
#[doc(hidden)]
#[derive(Debug)]
pub struct Begun {
    fence: Fence,
    shared: Arc<Shared>,
    report: Arc<Report>,
    stage: watch::Sender<Stage>,
}

/// How far an attempt is with its transaction.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
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

impl Stage {
    fn of(ruling: &Ruling) -> Self {
        match ruling {
            Ruling::Written => Self::Written,
            Ruling::Lost => Self::Lost,
            Ruling::Undone(_) => Self::Open,
            Ruling::Unknown(_) => Self::Unknown,
        }
    }
}

impl Begun {
    pub(crate) fn new(fence: Fence, shared: Arc<Shared>, report: Arc<Report>) -> Self {
        Self { fence, shared, report, stage: watch::Sender::new(Stage::Open) }
    }

    /// Once the handler has ended: waits for a commit that is on its way, refuses any later one, and says how far it came.
    pub async fn close(&self, patience: Duration) -> Stage {
        let until = tokio::time::Instant::now() + patience;
        let mut stage = self.stage.subscribe();
        loop {
            let in_time = timeout_at(until, stage.wait_for(|stage| *stage != Stage::Committing)).await.is_ok();
            let mut last = Stage::Open;
            let closed = self.stage.send_if_modified(|stage| {
                last = *stage;
                let ended = *stage != Stage::Committing;
                if ended {
                    *stage = Stage::Closed;
                }
                ended
            });
            if closed || !in_time {
                return last;
            }
        }
    }

    fn move_on(&self, from: Stage, to: Stage) -> bool {
        self.stage.send_if_modified(|stage| {
            let moves = *stage == from;
            if moves {
                *stage = to;
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
        self.0.move_on(Stage::Committing, Stage::Unknown);
    }
}
