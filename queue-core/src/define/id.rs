//! Job ids and job states.

use std::{fmt, num::ParseIntError, str::FromStr};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Id of a job. The high bits are the job's enqueue time in milliseconds by the database's clock. The low 20 bits come from a sequence.
///
/// Ids therefore sort by age, and an id determines the day partition of its job. In JSON, an id is a string, because it exceeds the
/// integer range of a JavaScript number.
///
/// ```
/// use queue_core::JobId;
///
/// let id = JobId(1_767_225_600_000 << 20);
/// assert_eq!(id.enqueued_at().map(|at| at.timestamp()), Some(1_767_225_600)); // 2026-01-01
/// let parsed: JobId = id.to_string().parse()?;
/// assert_eq!(parsed, id);
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type)]
#[sqlx(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct JobId(pub i64);

impl JobId {
    /// Returns the enqueue time by the database's clock. The result is never `None`, because the 44 high bits of an id cannot exceed the
    /// range of `DateTime`.
    pub fn enqueued_at(self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp_millis(self.0 >> 20)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({})", self.0)
    }
}

impl FromStr for JobId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim_start_matches('#').parse().map(Self)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// State of a job. The table that contains the job's entry determines the state. No column stores the state.
///
/// ```
/// use queue_core::JobState;
///
/// let state: JobState = "dead".parse()?;
/// assert_eq!(state, JobState::Dead);
/// assert_eq!(state.to_string(), "dead");
/// # Ok::<(), queue_core::operate::UnknownState>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobState {
    /// The job is waiting behind another job of its ordering key. Entered by an enqueue or a requeue. Left when the job becomes the first
    /// of its key, or by an operator.
    Blocked,
    /// The job is waiting until it is due. Entered by a retry, a snooze, or an enqueue with a start time. Left by promotion or by an
    /// operator.
    Scheduled,
    /// The job is waiting for a worker. Entered by an enqueue, promotion, release, recovery or requeue, or when a blocked or parked job no
    /// longer has to wait. Left by a claim or by an operator.
    Ready,
    /// The job is leased to a worker. Entered by a claim. Left by a settle or a recovery.
    Running,
    /// The job is waiting for a signal or for other jobs. Durable jobs, flow nodes and jobs beyond an `in_flight` limit can be parked.
    /// Entered by an enqueue or a settle. Left by a signal, the end of other jobs, a timeout or an operator.
    Parked,
    /// The job has finished successfully. Entered by a settle. Pruned after the retention period.
    Completed,
    /// The job is a dead letter. Entered by a settle or a recovery. Left only when an operator requeues or discards the job.
    Dead,
    /// The job was cancelled. Entered by a cancellation, or by a settle or a recovery of a job that is being cancelled. Pruned after the
    /// retention period.
    Cancelled,
    /// The job did not start before its expiry time and never runs. Entered when a worker finds the job after that time. Pruned after the
    /// retention period.
    Expired,
}

impl JobState {
    /// All states, in life-cycle order.
    pub const ALL: [Self; 9] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Parked,
        Self::Completed,
        Self::Dead,
        Self::Cancelled,
        Self::Expired,
    ];

    /// Returns the name of the state in lower case, as used in SQL and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error returned for a string that is not the name of a job state.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a job state; expected blocked, scheduled, ready, running, parked, completed, dead, cancelled or expired")]
pub struct UnknownState(String);

impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}
