//! How far a job is, as it said itself, for whoever looks from outside.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use crate::define::JobState;

/// How far a job is, by its own account: what its last attempt that said anything said last. Everything is empty before that.
///
/// What was said is written at most every 250 ms, and kept for about a minute after the job was completed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Progress {
    /// From 0 to 1; a completed job is at 1, whatever it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Events by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Which attempt said so; 0 if none did.
    pub attempt: i16,
    /// When that was written, by the database's clock.
    pub updated_at: Option<DateTime<Utc>>,
    /// Completed, dead, cancelled or expired, once it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<JobState>,
}

/// Whole percents of a fraction; 100 only of all of it.
pub fn percent(fraction: f64) -> u32 {
    let percent = (fraction.clamp(0.0, 1.0) * 100.0).round() as u32;
    if fraction < 1.0 { percent.min(99) } else { percent }
}

impl Progress {
    /// The same of a job that has come to this end.
    pub(crate) fn at_the_end(mut self, over: Option<JobState>) -> Self {
        if over == Some(JobState::Completed) {
            self.fraction = Some(1.0);
        }
        Self { over, ..self }
    }
}

impl FromRow<'_, PgRow> for Progress {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let counts: Option<&str> = row.try_get("counts")?;
        Ok(Self {
            fraction: row.try_get("fraction")?,
            stage: row.try_get("stage")?,
            // Written by us as it is read; what somebody else put there is not shown.
            counts: counts.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            attempt: row.try_get::<Option<i16>, _>("reported")?.unwrap_or_default(),
            updated_at: row.try_get("updated_at")?,
            over: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn only_all_of_it_is_a_hundred_percent() {
        let percents = [-1.0, 0.0, 0.29, 0.994, 0.999_999, 1.0, 7.0].map(percent);
        assert_eq!(percents, [0, 0, 29, 99, 99, 100, 100]);
    }
}
