//! Records of jobs and of their failed attempts, as returned by queries.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sqlx::{FromRow, Row as _, postgres::PgRow, types::Json};
use uuid::Uuid;

use crate::{
    define::{JobId, JobState, SystemAttributes, Tick, UnknownState},
    results::Progress,
};

/// Job, as stored at the time of the query.
///
/// `Debug` omits payload and output. JSON includes both if the query requested them.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// let record = job.find(pool).await?;
/// println!("{} in queue {}: {:?} after {} attempts", record.job_type, record.queue, record.state, record.attempts);
/// if let Some(payload) = &record.payload {
///     println!("{}", payload.get());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobRecord {
    /// Id of the job. Serialized as a string in JSON.
    pub id: JobId,
    /// Name of the job's queue.
    pub queue: String,
    /// Job type name under which the job is stored.
    pub job_type: String,
    /// Version of the job's payload, starting at 1.
    pub version: i16,
    /// Priority of the job. Jobs of higher priority run first.
    pub priority: i16,
    /// State of the job at the time of the query.
    pub state: JobState,
    /// Number of attempts since the job was enqueued, requeued or restarted, excluding snoozed, suspended and released attempts.
    pub attempts: i16,
    /// Maximum number of attempts. After the last failed attempt, the job becomes a dead letter.
    pub max_attempts: i16,
    /// Number of attempts that ended in a process crash since the job was last enqueued, requeued, restarted or suspended.
    pub crashes: i16,
    /// Time the job was enqueued, according to the database clock.
    pub enqueued_at: DateTime<Utc>,
    /// Due time of a scheduled job, end of a parked job's wait, or earliest start time of a blocked job, if any.
    pub run_at: Option<DateTime<Utc>>,
    /// Time the job completed, was cancelled, expired or became a dead letter; `None` until then.
    pub finished_at: Option<DateTime<Utc>>,
    /// Duration of the last attempt, if the job has completed. Serialized as `ran_ms`, in milliseconds.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ran: Option<Duration>,
    /// Metadata of the job as a JSON object, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub meta: Option<Box<RawValue>>,
    /// Optional attributes kept by the store. `child_of`, `node_of` or `part_of` identifies the parent job, flow or map that waits for
    /// the job to finish. `expires_at` is the time after which the job must not start. `skips` is set if the job stops blocking its
    /// ordering key when it becomes a dead letter. `unique` is the hash of the uniqueness key. `schedule` and `tick` identify the tick
    /// that enqueued the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub system: Option<Box<RawValue>>,
    /// Id of the worker that holds the job's lease, if any.
    pub worker: Option<Uuid>,
    /// Whether cancellation of the running job was requested and the handler has not ended yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    /// Error of the last failed attempt, truncated to 500 characters in lists. `None` after a requeue, and once the job has ended without
    /// failure.
    pub error: Option<String>,
    /// Output of the job's handler. Included in lists only with [`Jobs::with_payloads`](super::Jobs::with_payloads).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub output: Option<Box<RawValue>>,
    /// Payload of the job as stored. Included in lists only with [`Jobs::with_payloads`](super::Jobs::with_payloads).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Latest 100 failed attempts, oldest first. After a requeue, attempts are numbered from 1 again. Not included in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AttemptFailure>,
    /// Progress last reported by the job. Not included in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// Failed attempt of a job, with its error.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// for failure in job.find(pool).await?.failures {
///     println!("attempt {} failed after {:?}: {}", failure.attempt, failure.ran, failure.error);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptFailure {
    /// Number of the attempt, starting at 1.
    pub attempt: i16,
    /// Time of the failure, according to the database clock.
    pub at: DateTime<Utc>,
    /// Duration of the attempt. Serialized as `ran_ms`, in milliseconds.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ran: Duration,
    /// Error text of the attempt.
    pub error: String,
}

impl JobRecord {
    /// Returns the time after which the job must not start, or `None` if the job does not expire.
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        SystemAttributes::parse(self.system.as_ref().map(|system| system.get())).expires_at()
    }

    /// Returns the schedule tick that enqueued the job, if any.
    pub fn tick(&self) -> Option<Tick> {
        SystemAttributes::parse(self.system.as_ref().map(|system| system.get())).tick()
    }
}

impl fmt::Debug for JobRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRecord")
            .field("id", &self.id)
            .field("queue", &self.queue)
            .field("job_type", &self.job_type)
            .field("state", &self.state)
            .field("attempts", &self.attempts)
            .field("crashes", &self.crashes)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl FromRow<'_, PgRow> for JobRecord {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let id: JobId = row.try_get("id")?;
        let state: &str = row.try_get("state")?;
        let raw = |column| row.try_get::<Option<Json<Box<RawValue>>>, _>(column).map(|value| value.map(|json| json.0));
        Ok(Self {
            id,
            queue: row.try_get("queue")?,
            job_type: row.try_get("job_type")?,
            version: row.try_get("version")?,
            priority: row.try_get("priority")?,
            state: state.parse().map_err(|error: UnknownState| sqlx::Error::Decode(error.into()))?,
            attempts: row.try_get("attempts")?,
            max_attempts: row.try_get("max_attempts")?,
            crashes: row.try_get("crashes")?,
            enqueued_at: id.enqueued_at().unwrap_or_default(),
            run_at: row.try_get("run_at")?,
            finished_at: row.try_get("finished_at")?,
            ran: row.try_get::<Option<i32>, _>("ran_ms")?.map(duration),
            worker: row.try_get("worker")?,
            meta: raw("meta")?,
            system: raw("system")?,
            cancelling: row.try_get("cancelling")?,
            error: row.try_get("error")?,
            output: raw("output")?,
            payload: raw("payload")?,
            failures: Vec::new(),
            progress: None,
        })
    }
}

impl FromRow<'_, PgRow> for AttemptFailure {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            attempt: row.try_get("attempt")?,
            at: row.try_get("at")?,
            ran: duration(row.try_get("ran_ms")?),
            error: row.try_get("error")?,
        })
    }
}

fn duration(ms: i32) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs().into())
}

fn ms<S: Serializer>(duration: &(impl Copy + Into<Option<Duration>>), serializer: S) -> Result<S::Ok, S::Error> {
    (*duration).into().map(|duration: Duration| duration.as_millis() as u64).serialize(serializer)
}
