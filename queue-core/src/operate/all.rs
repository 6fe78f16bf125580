//! Batch operations on all jobs that a filter selects, and counts of the affected jobs.

use std::{
    fmt,
    future::{Future, IntoFuture, pending},
    pin::Pin,
    time::{Duration, Instant},
};

use serde::Serialize;

use sqlx::PgConnection;

use super::{
    act::{Act, OperationOutcome},
    audit::{self, Note},
    filter::Filter,
    rejection::explain,
    walk::Walk,
};
use crate::{
    connect::IntoConnection,
    define::JobId,
    error::Error,
    schema::{Connection, Session, Store},
};

/// Future that applies an operation to all jobs that a filter selects. Created by [`act_all`] and the functions based on it.
///
/// Processes each job that existed at the start once, in batches of at most 1000 jobs. Each batch is a separate transaction, unless the
/// connection is already in a transaction. On a pool, a batch fails if it takes longer than a minute or waits longer than ten seconds for
/// a lock. Jobs that are claimed or locked concurrently are skipped and not counted. After an interruption, completed batches stay in
/// effect, and running the same operation again processes the remaining jobs. The filter's `limit` and `before` are ignored.
///
/// ```no_run
/// # use queue_core::{Store, operate::{self, Filter}};
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let mails = Filter { queue: Some("mail".into()), ..Filter::default() };
/// let swept = operate::requeue_all(&pool, Store::default(), &mails).rate(50.0).await?;
/// println!("{} dead letters requeued", swept.done);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns [`Error::OutOfRange`] if the operation is not possible in the filter's state, if a parameter of the operation is out of range,
/// or if the rate is below 0.001 jobs per second. Returns [`Error::InvalidName`] if a name in the filter is invalid, and
/// [`Error::Database`] if a query fails.
#[must_use = "operations do nothing unless awaited"]
pub struct ActAll<'c> {
    on: Connection<'c>,
    store: Store,
    filter: Filter,
    act: Act,
    rate: Option<f64>,
    at_most: u64,
    stop: Pin<Box<dyn Future<Output = ()> + Send + 'c>>,
    /// Ids of the jobs to process. If set, the filter is ignored.
    ids: Option<Vec<JobId>>,
    note: Option<Note>,
}

/// Applies the operation to every job that `filter` selects.
pub fn act_all<'c>(on: impl IntoConnection<'c>, store: Store, filter: &Filter, act: Act) -> ActAll<'c> {
    ActAll {
        on: on.into_connection(),
        store,
        filter: filter.clone(),
        act,
        rate: None,
        at_most: u64::MAX,
        stop: Box::pin(pending()),
        ids: None,
        note: None,
    }
}

/// Applies the operation to the given jobs, in the given order. Jobs whose state does not allow the operation are skipped.
pub fn act_on<'c>(on: impl IntoConnection<'c>, store: Store, ids: Vec<JobId>, act: Act) -> ActAll<'c> {
    ActAll { ids: Some(ids), ..act_all(on, store, &Filter::default(), act) }
}

/// Number of jobs changed by an [`ActAll`], by outcome.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate::{self, Filter}};
///
/// let mails = Filter { queue: Some("mail".into()), ..Filter::default() };
/// let outcome = operate::cancel_all(pool, Store::default(), &mails).await?;
/// println!("{} jobs cancelled, {} jobs cancelling", outcome.done, outcome.cancelling);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct BulkOutcome {
    /// Number of jobs on which the operation has taken effect.
    pub done: u64,
    /// Number of jobs that were running and are now cancelling.
    pub cancelling: u64,
}

/// Returns the number of jobs that [`act_all`] would change now.
///
/// # Errors
/// Returns the errors of [`ActAll`], except for errors about the rate.
pub async fn count_matching(on: impl IntoConnection<'_>, store: Store, filter: &Filter, act: Act) -> Result<u64, Error> {
    count_matching_up_to(on, store, filter, act, u64::MAX).await
}

/// Counts jobs like [`count_matching`], but stops soon after `most` jobs. Cheaper if only the order of magnitude matters.
///
/// # Errors
/// Returns the errors of [`count_matching`].
pub async fn count_matching_up_to(on: impl IntoConnection<'_>, store: Store, filter: &Filter, act: Act, most: u64) -> Result<u64, Error> {
    let mut session = Session::begin_read_only(on.into_connection()).await?;
    let mut walk = match Walk::begin(session.connection(), store, filter, act).await {
        Ok(walk) => walk,
        Err(error) => {
            session.roll_back().await;
            return Err(error);
        }
    };
    let found = count_walk(session.connection(), &mut walk, most).await;
    session.end(found).await.map_err(|error| explain(error, store))
}

async fn count_walk(connection: &mut PgConnection, walk: &mut Walk<'_>, most: u64) -> sqlx::Result<u64> {
    let mut found = 0;
    while let Some(ids) = walk.next(connection, COUNT_BATCH).await? {
        found += ids.len() as u64;
        if found > most {
            break;
        }
    }
    Ok(found)
}

/// Maximum number of jobs per statement when only counting.
const COUNT_BATCH: i64 = 10_001;

/// Maximum number of jobs per batch.
const BATCH: i64 = 1000;

/// Minimum rate in jobs per second. A lower rate is probably a mistake.
const MIN_RATE: f64 = 0.001;

impl<'c> ActAll<'c> {
    /// Sets the maximum rate in jobs per second. Default: unlimited.
    pub fn rate(mut self, jobs_a_second: f64) -> Self {
        self.rate = Some(jobs_a_second);
        self
    }

    /// Sets the maximum number of jobs to process. Default: unlimited.
    pub fn at_most(mut self, jobs: u64) -> Self {
        self.at_most = jobs;
        self
    }

    /// Sets a future that ends the operation early. Once `stop` completes, the operation ends after the current batch.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'c) -> Self {
        self.stop = Box::pin(stop);
        self
    }

    /// Records the operation in the [`audit`](super::audit()) log. Each batch adds the number of its jobs to the entry, in the batch's
    /// transaction. Default: not recorded.
    pub fn noted(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }

    async fn send(self) -> Result<BulkOutcome, Error> {
        let Self { mut on, store, filter, act, rate, at_most, mut stop, ids, note } = self;
        if let Some(rate) = rate.filter(|rate| !rate.is_finite() || *rate < MIN_RATE) {
            return Err(Error::OutOfRange { what: "the rate", value: rate.to_string(), range: "at least 0.001 a second" });
        }
        // A rate-limited batch has a tenth of the jobs allowed per second, but at least one job.
        let most = rate.map_or(BATCH, |rate| ((rate / 10.0) as i64).clamp(1, BATCH));
        let mut source = JobSource::begin(&mut *on.acquire().await?, store, &filter, act, ids).await?;
        let (started, mut processed, mut swept, mut entry) = (Instant::now(), 0_usize, BulkOutcome::default(), None);
        let explain_error = |error| explain(error, store);
        while let left @ 1.. = at_most.saturating_sub(processed as u64) {
            let most = most.min(i64::try_from(left).unwrap_or(most));
            // On a pool, a connection is held only during a batch, not between batches.
            let mut session = Session::begin_bounded(&mut on).await.map_err(explain_error)?;
            let Some(ids) = source.next(session.connection(), most).await.map_err(explain_error)? else {
                session.roll_back().await;
                break;
            };
            let acted = match &note {
                Some(note) => apply_and_record(session.connection(), store, act, &ids, note, &mut entry).await,
                None => act.apply_to_all(session.connection(), store, &ids).await,
            };
            let acted = acted.map_err(explain_error)?;
            session.commit().await.map_err(explain_error)?;
            swept.add(&acted);
            processed += ids.len();
            let due = rate.map_or(started, |rate| started + Duration::from_secs_f64(processed as f64 / rate));
            tokio::select! {
                biased;
                () = &mut stop => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
        Ok(swept)
    }
}

impl BulkOutcome {
    fn add(&mut self, acted: &[OperationOutcome]) {
        for acted in acted {
            match acted {
                OperationOutcome::Done => self.done += 1,
                OperationOutcome::Cancelling => self.cancelling += 1,
            }
        }
    }
}

/// Source of job ids: a scan of the jobs that the filter selects, or a list of ids.
enum JobSource<'f> {
    Walk(Walk<'f>),
    Ids(std::vec::IntoIter<JobId>),
}

impl<'f> JobSource<'f> {
    async fn begin(
        connection: &mut PgConnection,
        store: Store,
        filter: &'f Filter,
        act: Act,
        ids: Option<Vec<JobId>>,
    ) -> Result<Self, Error> {
        match ids {
            Some(ids) => act.check().map(|()| Self::Ids(ids.into_iter())),
            None => Walk::begin(connection, store, filter, act).await.map(Self::Walk),
        }
    }

    async fn next(&mut self, connection: &mut PgConnection, most: i64) -> sqlx::Result<Option<Vec<JobId>>> {
        match self {
            Self::Walk(walk) => walk.next(connection, most).await,
            Self::Ids(ids) => Ok(Some(ids.take(most as usize).collect()).filter(|ids: &Vec<JobId>| !ids.is_empty())),
        }
    }
}

/// Applies the operation to a batch and atomically records it in the audit log. The first batch writes the audit entry and stores the
/// entry's number in `entry`.
async fn apply_and_record(
    connection: &mut PgConnection,
    store: Store,
    act: Act,
    ids: &[JobId],
    note: &Note,
    entry: &mut Option<i64>,
) -> sqlx::Result<Vec<OperationOutcome>> {
    let mut session = Session::on(connection).await?;
    let acted = act.apply_to_all(session.connection(), store, ids).await?;
    let jobs = acted.len() as u64;
    let written = match *entry {
        Some(entry) => audit::add_jobs(session.connection(), store, entry, jobs).await.map(|()| entry)?,
        None => audit::write_entry(session.connection(), store, note, jobs).await?,
    };
    session.commit().await?;
    *entry = Some(written);
    Ok(acted)
}

impl<'c> IntoFuture for ActAll<'c> {
    type Output = Result<BulkOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for ActAll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActAll").field("act", &self.act).field("filter", &self.filter).field("rate", &self.rate).finish_non_exhaustive()
    }
}
