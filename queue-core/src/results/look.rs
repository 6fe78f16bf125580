//! Looking at jobs: the one statement, and what it shows of each.

use std::{sync::Arc, time::Duration};

use sqlx::{Executor, FromRow as _, Postgres, Row as _, postgres::PgRow};

use super::progress::Progress;
use crate::{
    define::{JobId, JobState},
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
    Expired,
    Dead {
        error: String,
        attempts: i16,
    },
    /// It is completed, with an output for which there was no room in the answer.
    Later,
    /// It is not there.
    NotFound,
}

impl JobSnapshot {
    pub(crate) fn not_found() -> Self {
        Self { outcome: WaitOutcome::NotFound, progress: Progress::default() }
    }

    fn of(row: &PgRow) -> sqlx::Result<Self> {
        let state: &str = row.try_get("state")?;
        let (outcome, over) = match state {
            "completed" if row.try_get("later")? => (WaitOutcome::Later, None),
            "completed" => (WaitOutcome::Completed { output: row.try_get("output")? }, Some(JobState::Completed)),
            "cancelled" => (WaitOutcome::Cancelled { error: row.try_get("error")? }, Some(JobState::Cancelled)),
            "expired" => (WaitOutcome::Expired, Some(JobState::Expired)),
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

/// Nobody is left to look.
pub(crate) fn nobody() -> Arc<Error> {
    Arc::new(Error::Database(sqlx::Error::WorkerCrashed))
}
