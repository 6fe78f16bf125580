//! What an operator may do to a job that no worker holds. Each statement is fenced by the row that it takes the job from.

use queue_core::{JobId, JobState, Store};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};

use super::look::{Filter, record};
use crate::error::Error;

/// Brings a dead, completed or cancelled job back: it becomes ready at the end of its lane, with all attempts before it. Its failures are
/// kept, its output is not. With an ordering key it goes to the end of that; only a dead letter that holds up its key keeps its place there.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] when it is waiting or running; the database's.
pub async fn requeue(connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
    Act::Requeue.on(connection, store, id).await
}

/// Calls off a job that is ready, scheduled or blocked: it will not run, and its ordering key goes on without it. A running job cannot be called off.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] when it is running or over; the database's.
pub async fn cancel(connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
    Act::Cancel.on(connection, store, id).await
}

/// Deletes a dead letter with its payload and history. Nothing of it is left, and an ordering key that it held up goes on.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::WrongState`] when it is not dead; the database's.
pub async fn discard(connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
    Act::Discard.on(connection, store, id).await
}

/// Requeues the dead letters of the filter's queue and type, each once; returns how many. Ended half-way, what was done stays done.
///
/// # Errors
/// [`queue_core::Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn requeue_all(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<u64, Error> {
    filter.check()?;
    let mut requeued = 0;
    let mut after = None;
    while let Some(ids) = dead_letters(connection, store, filter, &mut after).await? {
        requeued += raise(connection, store, &ids).await?;
    }
    Ok(requeued)
}

/// Discards the dead letters of the filter's queue and type; returns how many. Ended half-way, what was done stays done.
///
/// # Errors
/// [`queue_core::Error::InvalidName`] for a filter's name outside the grammar; the database's.
pub async fn discard_all(connection: &mut PgConnection, store: Store, filter: &Filter) -> Result<u64, Error> {
    filter.check()?;
    let mut discarded = 0;
    let mut after = None;
    while let Some(ids) = dead_letters(connection, store, filter, &mut after).await? {
        discarded += batch(connection, store.sql(DISCARD), &ids).await?;
    }
    tell(connection, store).await?;
    Ok(discarded)
}

const DISCARD: &str = include_str!("../../sql/discard.sql");

/// So often a job may slip from one state to another, both fit, between our statement and our look at it.
const TRIES: usize = 5;

/// The most jobs of one statement.
const BATCH: i64 = 1000;

/// What was asked for.
#[derive(Clone, Copy)]
enum Act {
    Requeue,
    Cancel,
    Discard,
}

impl Act {
    async fn on(self, connection: &mut PgConnection, store: Store, id: JobId) -> Result<(), Error> {
        let mut tries = TRIES;
        loop {
            let changed = match self {
                Self::Requeue => match raise(connection, store, &[id]).await? {
                    0 => reopen(connection, store, id).await?,
                    raised => raised,
                },
                Self::Cancel => batch(connection, store.sql(include_str!("../../sql/cancel.sql")), &[id]).await?,
                Self::Discard => batch(connection, store.sql(DISCARD), &[id]).await?,
            };
            if changed > 0 {
                if !matches!(self, Self::Requeue) {
                    tell(connection, store).await?;
                }
                return Ok(());
            }
            // It may have come there only after our statement looked: promoted, released, dead. Then the next try finds it.
            let state = record(connection, store, id, false).await?.ok_or(Error::NotFound(id))?.state;
            tries -= 1;
            if tries == 0 || !self.from().contains(&state) {
                let (wanted, done) = self.words();
                return Err(Error::WrongState { id, state, wanted, done });
            }
        }
    }

    /// The states in which it can be done.
    fn from(self) -> &'static [JobState] {
        match self {
            Self::Requeue => &[JobState::Dead, JobState::Completed, JobState::Cancelled],
            Self::Cancel => &[JobState::Ready, JobState::Scheduled, JobState::Blocked],
            Self::Discard => &[JobState::Dead],
        }
    }

    /// The same states in words, and the participle.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Requeue => ("dead, completed or cancelled", "requeued"),
            Self::Cancel => ("ready, scheduled or blocked", "cancelled"),
            Self::Discard => ("dead", "discarded"),
        }
    }
}

/// The next dead letters; `None` after the last. Ids only grow from call to call, so that a job that dies again is not met again.
async fn dead_letters(
    connection: &mut PgConnection,
    store: Store,
    filter: &Filter,
    after: &mut Option<JobId>,
) -> Result<Option<Vec<JobId>>, Error> {
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/dead_letters.sql")))
        .bind(&filter.queue)
        .bind(&filter.job_type)
        .bind(after.map_or(0, |id| id.0))
        .bind(BATCH);
    let ids: Vec<JobId> = statement.persistent(false).fetch_all(connection).await?;
    *after = ids.last().copied();
    Ok(after.map(|_| ids))
}

/// Requeues those of `ids` that are dead letters; returns how many.
async fn raise(connection: &mut PgConnection, store: Store, ids: &[JobId]) -> sqlx::Result<u64> {
    let mut tx = begin(connection).await?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/requeue.sql"))).bind(ids);
    let back = statement.persistent(false).fetch_all(&mut *tx).await?;
    announce(tx, store, back).await
}

/// Requeues the job `id` if it is completed or cancelled; returns how many that are.
async fn reopen(connection: &mut PgConnection, store: Store, id: JobId) -> sqlx::Result<u64> {
    let mut tx = begin(connection).await?;
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/reopen.sql"))).bind(id);
    let back = statement.persistent(false).fetch_all(&mut *tx).await?;
    announce(tx, store, back).await
}

/// Wakes workers that sleep over the queues of these jobs, and commits.
async fn announce(mut tx: Transaction<'_, Postgres>, store: Store, back: Vec<(JobId, String)>) -> sqlx::Result<u64> {
    let requeued = back.len() as u64;
    let mut queues: Vec<String> = back.into_iter().map(|(_, queue)| queue).collect();
    queues.sort();
    queues.dedup();
    if !queues.is_empty() {
        // A statement of its own: its snapshot is newer than the insert, so no worker can fall asleep between the two unseen.
        sqlx::query(store.sql(include_str!("../../sql/wake_others.sql"))).bind(&queues).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(requeued)
}

/// A transaction in which each statement has its own snapshot, whatever the role's default is; within the caller's if there is one.
async fn begin(connection: &mut PgConnection) -> sqlx::Result<Transaction<'_, Postgres>> {
    if connection.is_in_transaction() {
        return connection.begin().await;
    }
    connection.begin_with("begin isolation level read committed").await
}

/// Tells those who wait for jobs that some are over.
async fn tell(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/tell.sql"))).persistent(false);
    statement.execute(connection).await.map(drop)
}

/// Runs a statement that returns the ids of `ids` that it changed; returns how many.
async fn batch(connection: &mut PgConnection, statement: &'static str, ids: &[JobId]) -> sqlx::Result<u64> {
    let changed: Vec<JobId> = sqlx::query_scalar(statement).bind(ids).persistent(false).fetch_all(connection).await?;
    Ok(changed.len() as u64)
}
