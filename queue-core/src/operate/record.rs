//! Jobs and failed attempts as records.

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

/// One job, as stored at one moment.
///
/// `Debug` omits payload and output; JSON has them if they were requested.
#[derive(Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobRecord {
    /// Id of the job; in JSON a string.
    pub id: JobId,
    /// Queue.
    pub queue: String,
    /// Job type, by the name under which it is stored.
    pub job_type: String,
    /// Version of the payload; the first is 1.
    pub version: i16,
    /// Priority; higher runs first.
    pub priority: i16,
    /// State of the job.
    pub state: JobState,
    /// Number of attempts started since the last requeue.
    pub attempts: i16,
    /// Number of attempts after which the job becomes a dead letter.
    pub max_attempts: i16,
    /// Number of attempts since the last requeue that ended with their process.
    pub crashes: i16,
    /// Time of the enqueue, by the database's clock.
    pub enqueued_at: DateTime<Utc>,
    /// Time at which a scheduled job is due, or before which a blocked one will not run.
    pub run_at: Option<DateTime<Utc>>,
    /// Time at which the job was completed or cancelled, or became a dead letter.
    pub finished_at: Option<DateTime<Utc>>,
    /// Duration of the last attempt, if the job is completed. In JSON `ran_ms`, in milliseconds.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ran: Option<Duration>,
    /// Metadata: a JSON object, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub meta: Option<Box<RawValue>>,
    /// Optional attributes kept by the store: the job that waits for its end, which is its parent (`child_of`), its flow (`node_of`) or its
    /// map (`part_of`); `expires_at`; `skips`, if its ordering key continues without it once it is dead; the hash of its uniqueness key
    /// (`unique`); the tick that enqueued it (`schedule`, `tick`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub system: Option<Box<RawValue>>,
    /// Worker that runs the job, if it is running.
    pub worker: Option<Uuid>,
    /// Whether cancellation of the running job was requested and its handler has not ended yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    /// Error of the last failed attempt; in lists its first 500 characters. `None` once the job has ended without failure, and after a
    /// requeue.
    pub error: Option<String>,
    /// Output of the handler. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub output: Option<Box<RawValue>>,
    /// Payload as stored. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Latest 100 failed attempts, oldest first. Attempts are numbered from 1 again after a requeue. Not in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AttemptFailure>,
    /// Progress last reported by the job. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// Failed attempt.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptFailure {
    /// Number of the attempt; the first is 1.
    pub attempt: i16,
    /// Time of the failure, by the database's clock.
    pub at: DateTime<Utc>,
    /// Duration of the attempt. In JSON `ran_ms`, in milliseconds.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ran: Duration,
    /// Error of the attempt.
    pub error: String,
}

impl JobRecord {
    /// Returns the time after which the job must not start, if it expires.
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        SystemAttributes::parse(self.system.as_ref().map(|system| system.get())).expires_at()
    }

    /// Returns the tick of a schedule that enqueued the job, if any.
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
