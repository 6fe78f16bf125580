//! A job as an operator sees it.

use std::{fmt, time::Duration};

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sqlx::{FromRow, Row as _, postgres::PgRow, types::Json};
use uuid::Uuid;

use crate::{
    define::{JobId, JobState, System, Tick, UnknownState},
    results::Progress,
};

/// One job, as the tables have it at one moment.
///
/// Its `Debug` shows neither payload nor output; its JSON shows them when they were asked for.
#[derive(Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobRecord {
    /// Its id; in JSON a string.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// Its job type.
    pub job_type: String,
    /// The version of its payload; the first is 1.
    pub version: i16,
    /// Its priority; higher runs first.
    pub priority: i16,
    /// Where it is.
    pub state: JobState,
    /// How many attempts were begun, since the last requeue.
    pub attempts: i16,
    /// How many attempts it has before it is a dead letter.
    pub max_attempts: i16,
    /// How many attempts ended with their process, since the last requeue.
    pub crashes: i16,
    /// When it was enqueued, by the database's clock.
    pub enqueued_at: DateTime<Utc>,
    /// When it is due, if it is scheduled; before which it will not run, if it is blocked.
    pub run_at: Option<DateTime<Utc>>,
    /// When it was completed or cancelled, or became a dead letter.
    pub finished_at: Option<DateTime<Utc>>,
    /// How long its last attempt took, if it is completed.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ran: Option<Duration>,
    /// Its metadata: an object, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub meta: Option<Box<RawValue>>,
    /// Optional attributes that the store keeps: what waits for its end, which is its parent (`child_of`), its flow (`node_of`) or its map
    /// (`part_of`); `expires_at`; `skips`, if its ordering key goes on without it once it is dead; the hash of its uniqueness key (`unique`); the
    /// tick that enqueued it (`schedule`, `tick`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub system: Option<Box<RawValue>>,
    /// Who runs it, if it is running.
    pub worker: Option<Uuid>,
    /// Whether somebody wants it cancelled while it runs, and its handler has not ended yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    /// Why its last attempt failed; in lists the first 500 characters. `None` once it is over well, and after a requeue.
    pub error: Option<String>,
    /// What its handler returned. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub output: Option<Box<RawValue>>,
    /// The payload as it is stored. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Its failed attempts, the latest 100, in the order of time; attempts are numbered anew after a requeue. Not in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AttemptFailure>,
    /// What it said of itself, if anything. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// One attempt that failed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptFailure {
    /// Its number; the first is 1.
    pub attempt: i16,
    /// When it failed, by the database's clock.
    pub at: DateTime<Utc>,
    /// How long it took.
    #[serde(rename = "ran_ms", serialize_with = "ms")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ran: Duration,
    /// Why it failed.
    pub error: String,
}

impl JobRecord {
    /// When it is not to begin any more, if it expires.
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        System::read(self.system.as_ref().map(|system| system.get())).expires_at()
    }

    /// The tick of a schedule that enqueued it, if one did.
    pub fn tick(&self) -> Option<Tick> {
        System::read(self.system.as_ref().map(|system| system.get())).tick()
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
