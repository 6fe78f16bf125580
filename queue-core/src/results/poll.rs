//! Polling of jobs: the query, and the snapshots that it returns.

use sqlx::{Executor, FromRow as _, Postgres, Row as _, postgres::PgRow};

use super::progress::Progress;
use crate::{
    define::{JobId, JobState},
    schema::Store,
};

/// Snapshot of a job, as returned by a poll.
#[derive(Debug, PartialEq)]
pub(crate) struct JobSnapshot {
    pub(crate) outcome: WaitOutcome,
    pub(crate) progress: Progress,
}

/// Outcome of a job, as returned by a poll.
#[derive(Debug, PartialEq)]
pub(crate) enum WaitOutcome {
    /// The job has not finished.
    Live,
    Completed {
        /// JSON text of the output; `None` if the handler returned nothing.
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
    /// The job does not exist.
    NotFound,
}

impl JobSnapshot {
    pub(crate) fn not_found() -> Self {
        Self { outcome: WaitOutcome::NotFound, progress: Progress::default() }
    }

    /// Returns whether the snapshot is final: the job has finished or does not exist. The waiter ends a subscription after a final
    /// snapshot.
    pub(crate) fn is_final(&self) -> bool {
        self.progress.over.is_some() || self.outcome == WaitOutcome::NotFound
    }

    /// Decodes a row. Returns `None` for a completed job whose output the query omitted because preceding outputs had reached the size
    /// limit of a poll. A later poll returns the output.
    fn of(row: &PgRow) -> sqlx::Result<Option<Self>> {
        let state: &str = row.try_get("state")?;
        let (outcome, final_state) = match state {
            "completed" if row.try_get("later")? => return Ok(None),
            "completed" => (WaitOutcome::Completed { output: row.try_get("output")? }, Some(JobState::Completed)),
            "cancelled" => (WaitOutcome::Cancelled { error: row.try_get("error")? }, Some(JobState::Cancelled)),
            "expired" => (WaitOutcome::Expired, Some(JobState::Expired)),
            "dead" => (WaitOutcome::Dead { error: row.try_get("error")?, attempts: row.try_get("attempts")? }, Some(JobState::Dead)),
            _ => (WaitOutcome::Live, None),
        };
        Ok(Some(Self { outcome, progress: Progress::from_row(row)?.with_final_state(final_state) }))
    }
}

/// Queries the current snapshots of the jobs in `ids`. Jobs that do not exist are omitted. A snapshot is `None` if the job has completed,
/// but the poll reached its size limit before this job's output. Such a job must be polled again.
pub(crate) async fn poll_jobs<'c, E: Executor<'c, Database = Postgres>>(
    on: E,
    store: Store,
    ids: &[JobId],
) -> sqlx::Result<Vec<(JobId, Option<JobSnapshot>)>> {
    let rows = sqlx::query(store.sql(include_str!("../../sql/job_states.sql"))).bind(ids).fetch_all(on).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, JobSnapshot::of(row)?))).collect()
}

/// Returns whether the error may be temporary, in which case another poll may succeed.
pub(crate) fn is_temporary(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => {
            // 25006: the server is a standby. 40001: a conflict with recovery on a standby has cancelled the query. 57014: a timeout has
            // cancelled the query.
            let code = db.code().unwrap_or_default();
            ["57P", "08", "53"].iter().any(|class| code.starts_with(class)) || ["25006", "40001", "57014"].contains(&&*code)
        }
        sqlx::Error::Configuration(_) | sqlx::Error::PoolClosed | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => false,
        _ => true,
    }
}
