//! Looking at jobs: the one statement, and one job looked at again and again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{Executor, FromRow as _, PgPool, Postgres, Row as _, postgres::PgRow};

use super::progress::Progress;
use super::{On, WaitError, waiter::Follow};
use crate::{
    connect::JobRef,
    define::{JobId, JobState},
    enqueue::explain,
    error::Error,
    schema::Store,
};

/// What was seen of a job.
#[derive(Debug, PartialEq)]
pub(crate) struct JobSnapshot {
    pub(crate) outcome: WaitOutcome,
    pub(crate) progress: Progress,
}

/// What came of a job.
#[derive(Debug, PartialEq)]
pub(crate) enum WaitOutcome {
    /// It is not over.
    Live,
    Completed {
        /// JSON text.
        output: Option<String>,
    },
    Cancelled {
        error: Option<String>,
    },
    Dead {
        error: String,
        attempts: i16,
    },
    /// It is completed, with an output for which there was no room in the answer.
    Later,
    /// It is not there.
    Gone,
}

impl JobSnapshot {
    pub(crate) fn gone() -> Self {
        Self { outcome: WaitOutcome::Gone, progress: Progress::default() }
    }

    fn of(row: &PgRow) -> sqlx::Result<Self> {
        let state: &str = row.try_get("state")?;
        let (outcome, over) = match state {
            "completed" if row.try_get("later")? => (WaitOutcome::Later, None),
            "completed" => (WaitOutcome::Completed { output: row.try_get("output")? }, Some(JobState::Completed)),
            "cancelled" => (WaitOutcome::Cancelled { error: row.try_get("error")? }, Some(JobState::Cancelled)),
            "dead" => (WaitOutcome::Dead { error: row.try_get("error")?, attempts: row.try_get("attempts")? }, Some(JobState::Dead)),
            _ => (WaitOutcome::Live, None),
        };
        Ok(Self { outcome, progress: Progress::from_row(row)?.at_the_end(over) })
    }
}

/// The jobs of `ids` that are there, as they are now.
pub(crate) async fn look<'c, E: Executor<'c, Database = Postgres>>(
    on: E,
    store: Store,
    ids: &[JobId],
) -> sqlx::Result<Vec<(JobId, JobSnapshot)>> {
    let rows = sqlx::query(store.sql(include_str!("../../sql/look.sql"))).bind(ids).fetch_all(on).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, JobSnapshot::of(row)?))).collect()
}

/// Whether looking again later may help: the database is away, not wrong.
pub(crate) fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => {
            db.code().is_some_and(|code| ["57P", "08", "53"].iter().any(|class| code.starts_with(class)) || code == "25006")
        }
        sqlx::Error::Configuration(_) | sqlx::Error::PoolClosed | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => false,
        _ => true,
    }
}

/// How long the database may be away before those who wait are told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The first pause between two looks over a pool, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// The first pause while progress is watched: people look at it.
const WATCHING: Duration = Duration::from_millis(100);

/// Sees one job again and again.
pub(crate) enum JobWatcher {
    Pool(Box<PoolWatcher>),
    Waiter(Follow),
}

/// The looks at one job over a pool.
pub(crate) struct PoolWatcher {
    job: JobRef,
    pool: PgPool,
    began: Option<Instant>,
    shortest: Duration,
}

impl JobWatcher {
    pub(super) fn open(job: JobRef, on: On, watching: bool) -> Result<Self, WaitError> {
        match on {
            On::Pool(pool) => {
                let shortest = if watching { WATCHING } else { PAUSES.0 };
                Ok(Self::Pool(Box::new(PoolWatcher { job, pool, began: None, shortest })))
            }
            On::Waiter(waiter) => Ok(Self::Waiter(waiter.follow(job, watching)?)),
        }
    }

    /// The next snapshot of the job, not before it is time for it.
    pub(crate) async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        match self {
            Self::Pool(watcher) => watcher.next().await,
            Self::Waiter(follow) => follow.next().await.map_err(WaitError::Store),
        }
    }
}

impl PoolWatcher {
    async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        let mut failing: Option<Instant> = None;
        loop {
            if let Some(began) = self.began {
                // An eighth of the time waited: late by no more than that, and an hour's wait costs what a second's does.
                tokio::time::sleep((began.elapsed() / 8).clamp(self.shortest, PAUSES.1)).await;
            }
            let began = Instant::now();
            self.began.get_or_insert(began);
            match look(&self.pool, self.job.store(), &[self.job.id()]).await {
                Ok(found) => return Ok(Arc::new(found.into_iter().next().map_or_else(JobSnapshot::gone, |(_, snapshot)| snapshot))),
                Err(error) if may_pass(&error) && failing.get_or_insert(began).elapsed() < PATIENCE => {}
                Err(error) => return Err(WaitError::store(explain(error, self.job.store()))),
            }
        }
    }
}

/// Nobody is left to look.
pub(crate) fn nobody() -> Arc<Error> {
    Arc::new(Error::Database(sqlx::Error::WorkerCrashed))
}
