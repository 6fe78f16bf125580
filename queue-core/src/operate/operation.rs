//! Operations on one job. Each operation is an SQL function of the store, which any language can call. This module maps each operation to
//! the name and parameters of its function.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;

use super::rejection::explain;
use crate::{
    connect::JobRef,
    define::{JobId, JobState},
    define::{MAX_WAIT, format_duration},
    error::Error,
    schema::Store,
};

/// Operation on a job, such as a cancellation or a requeue, with its parameters.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// use std::time::Duration;
///
/// use queue_core::operate::Operation;
///
/// let operation = Operation::Snooze(Duration::from_secs(600));
/// job.apply(pool, operation).await?;
/// println!("job {} was {}", job.id(), operation.done());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Cancels the job. A waiting job will not run. A running job becomes cancelling; see [`OperationOutcome::Cancelling`].
    Cancel,
    /// Schedules a ready or scheduled job for the given time. A time in the past makes the job due immediately.
    Reschedule(DateTime<Utc>),
    /// Postpones a ready or scheduled job. The job becomes due the given duration after the current time of the database clock. The
    /// maximum duration is 100 years.
    Snooze(Duration),
    /// Makes a scheduled or parked job ready. A durable job then checks whether its wait has ended. If the wait has not ended, the job
    /// waits again.
    RunNow,
    /// Sets the priority of a ready or scheduled job. Retries and requeues keep the new priority.
    Priority(i16),
    /// Makes a dead, completed, cancelled or expired job ready at the end of its lane, with all attempts available again. Recorded
    /// failures are kept, and the output is deleted. A job with an ordering key moves behind all other jobs of the key. Only a dead
    /// letter that blocks its key keeps its position.
    ///
    /// A job whose uniqueness key is held by another job is rejected with [`Error::KeyTaken`]. Operations on many jobs skip such a job
    /// instead.
    Requeue,
    /// Requeues the job like [`Operation::Requeue`], even if another job holds the uniqueness key.
    ForceRequeue,
    /// Deletes a dead letter with its payload and history. If the dead letter blocked an ordering key, the key's next job can run.
    Discard,
}

/// Outcome of an operation on a job: either the operation has taken effect, or a cancellation is in progress.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// use queue_core::operate::OperationOutcome;
///
/// match job.cancel(pool).await? {
///     OperationOutcome::Cancelling => println!("job {} is running, its worker will end the attempt", job.id()),
///     _ => println!("job {} is cancelled", job.id()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OperationOutcome {
    /// The operation has taken effect.
    Done,
    /// The job was running and is now cancelling. Within about a second, the worker triggers the handler's cancellation token
    /// ([`Context::cancelled`](crate::Context::cancelled)). After `cancel_grace`, the worker drops the handler's future. The job is then
    /// cancelled, unless the attempt completes first. The job is never retried, even if the process crashes.
    Cancelling,
}

/// Parameters of the SQL functions that apply operations. Each operation sets at most one parameter.
#[derive(Default)]
struct OperationParams {
    run_at: Option<DateTime<Utc>>,
    wait_ms: Option<f64>,
    priority: Option<i32>,
}

impl Operation {
    /// Returns the name of the SQL function for one job, such as `cancel` for `queue.cancel`.
    fn sql_name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Snooze(_) => "snooze",
            Self::RunNow => "run_now",
            Self::Priority(_) => "set_priority",
            Self::Requeue => "requeue",
            Self::ForceRequeue => "force_requeue",
            Self::Discard => "discard",
        }
    }

    /// Returns the name of the operation's result, such as `requeued`.
    pub fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Reschedule(_) => "rescheduled",
            Self::Snooze(_) => "snoozed",
            Self::RunNow => "ready",
            Self::Priority(_) => "changed",
            Self::Requeue | Self::ForceRequeue => "requeued",
            Self::Discard => "discarded",
        }
    }

    /// Returns the job states to which the operation applies when a filter selects the jobs, and a description of the states for error
    /// messages. The states are processed in the returned order. No operation moves a job to a later state in that order, so no job is
    /// processed twice. A requeue by a filter selects only dead letters. Other finished jobs are requeued by their ids.
    pub(super) fn states(self) -> (&'static [JobState], &'static str) {
        match self {
            // Blocked jobs are cancelled first. Otherwise, cancelling the first job of a key would make the key's next job ready, and a
            // worker could start that job.
            Self::Cancel => (
                &[JobState::Blocked, JobState::Scheduled, JobState::Parked, JobState::Ready, JobState::Running],
                "blocked, scheduled, parked, ready or running",
            ),
            Self::Reschedule(_) | Self::Snooze(_) | Self::Priority(_) => (&[JobState::Scheduled, JobState::Ready], "scheduled or ready"),
            Self::RunNow => (&[JobState::Scheduled, JobState::Parked], "scheduled or parked"),
            Self::Requeue | Self::ForceRequeue => {
                (&[JobState::Dead], "dead for a requeue of all; requeue completed, cancelled and expired jobs by their ids")
            }
            Self::Discard => (&[JobState::Dead], "dead"),
        }
    }

    fn params(self) -> OperationParams {
        match self {
            Self::Reschedule(at) => OperationParams { run_at: Some(at), ..OperationParams::default() },
            Self::Snooze(wait) => OperationParams { wait_ms: Some(wait.as_secs_f64() * 1000.0), ..OperationParams::default() },
            Self::Priority(priority) => OperationParams { priority: Some(priority.into()), ..OperationParams::default() },
            Self::Cancel | Self::RunNow | Self::Requeue | Self::ForceRequeue | Self::Discard => OperationParams::default(),
        }
    }

    /// Checks the parameters against the ranges that the database accepts. Called before a statement is sent.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Self::Reschedule(at) if !(0..=MAX_TIMESTAMP).contains(&at.timestamp()) => {
                Err(Error::OutOfRange { what: "the time to run at", value: at.to_rfc3339(), range: "within the years 1970 to 9999" })
            }
            Self::Snooze(wait) if wait > MAX_WAIT => {
                Err(Error::OutOfRange { what: "the snooze duration", value: format_duration(wait), range: "at most 100 years" })
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn apply_to_one(self, connection: &mut PgConnection, job: JobRef) -> Result<OperationOutcome, Error> {
        self.check()?;
        let OperationParams { run_at, wait_ms, priority } = self.params();
        let statement = sqlx::query_scalar(job.store().sql(include_str!("../../sql/apply_to_one.sql")));
        let statement = statement.bind(job.id()).bind(self.sql_name()).bind(run_at).bind(wait_ms).bind(priority);
        let word: String = statement.fetch_one(connection).await.map_err(|error| explain(error, job.store()))?;
        Ok(OperationOutcome::from_word(&word))
    }

    /// Applies the operation to the jobs in `ids` whose state allows the operation. Returns one outcome per changed job.
    pub(super) async fn apply_to_all(
        self,
        connection: &mut PgConnection,
        store: Store,
        ids: &[JobId],
    ) -> sqlx::Result<Vec<OperationOutcome>> {
        let OperationParams { run_at, wait_ms, priority } = self.params();
        let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/apply_to_all.sql")));
        let statement = statement.bind(ids).bind(self.sql_name()).bind(run_at).bind(wait_ms).bind(priority);
        let words: Vec<String> = statement.fetch_all(connection).await?;
        Ok(words.iter().map(|word| OperationOutcome::from_word(word)).collect())
    }
}

impl OperationOutcome {
    /// Parses the result of an SQL function. Every result except `cancelling` means that the operation has taken effect.
    fn from_word(word: &str) -> Self {
        if word == "cancelling" { Self::Cancelling } else { Self::Done }
    }
}

/// Last second of the year 9999, as a Unix timestamp.
const MAX_TIMESTAMP: i64 = 253_402_300_799;
