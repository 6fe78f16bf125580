//! What a job is called by, and in which state it can be.

use std::{fmt, num::ParseIntError, str::FromStr};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A job's id: the milliseconds of the database's clock at the enqueue, then 20 bits of a sequence.
///
/// So ids sort by age, and the day of a job is read off its id. In JSON it is a string: it does not fit a JavaScript number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type)]
#[sqlx(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct JobId(pub i64);

impl JobId {
    /// When the job was enqueued, by the database's clock; `None` for an id that no store gave out.
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

/// Where a job is. Not a column: the table that holds the job's entry says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobState {
    /// Waits behind another job of its ordering key. Enters by an enqueue or a requeue; leaves once it is the first, or by an operator.
    Blocked,
    /// Waits for its time. Enters by an enqueue with a time, a retry or a snooze; leaves by promotion or an operator.
    Scheduled,
    /// Waits for a worker. Enters by an enqueue, promotion, release, recovery or requeue; leaves by a claim or an operator.
    Ready,
    /// Held by a worker's lease. Enters by a claim; leaves by a settle or a recovery.
    Running,
    /// Waits for a signal: a durable job that has begun. Enters by a settle; leaves by a signal, by the end of its wait, or by an operator.
    Parked,
    /// Done. Enters by a settle; pruned after the retention.
    Completed,
    /// A dead letter. Enters by a settle or a recovery; leaves only by an operator's requeue or discard.
    Dead,
    /// Cancelled by an operator. Enters by an act, or by a settle or a recovery of a job that is cancelling. Pruned after the retention.
    Cancelled,
    /// Not begun by the time that its enqueue said, and so not run. Enters by any worker once that has come. Pruned after the retention.
    Expired,
}

impl JobState {
    /// Every state, in the order of a job's life.
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

    /// The state's name in lower case, as SQL and JSON have it.
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

/// A text that is not a state's name.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no job state; there are blocked, scheduled, ready, running, parked, completed, dead, cancelled and expired")]
pub struct UnknownState(String);

impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}
