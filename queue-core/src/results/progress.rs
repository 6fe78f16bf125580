//! Progress of a job, as reported by its attempts.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, Row as _, postgres::PgRow};

use crate::define::JobState;

/// Progress last reported by a job, and the job's final state. Before the first report, the reported fields are empty.
///
/// Progress is written at most every 250 ms, or immediately with a checkpoint and at the end of an attempt. It is kept for about a minute
/// after the job has completed.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobRef) -> Result<(), queue_core::Error> {
/// let progress = job.progress(pool).await?;
/// println!("{:.0} %", progress.fraction.unwrap_or(0.0) * 100.0);
/// if let Some(stage) = &progress.stage {
///     println!("{stage}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Progress {
    /// Completed fraction of the work, from 0 to 1; always 1 for a completed job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// Current stage of the job, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Event counts that the job reported, keyed by event name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Number of the attempt that last reported progress; 0 if no attempt has reported progress.
    pub attempt: i16,
    /// Time of the last report, according to the database clock.
    pub updated_at: Option<DateTime<Utc>>,
    /// Final state of the job: completed, dead, cancelled or expired. `None` if the job has not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<JobState>,
}

/// Converts a fraction to a whole percentage from 0 to 100. A fraction below 1 yields at most 99.
pub fn percent(fraction: f64) -> u32 {
    let percent = (fraction.clamp(0.0, 1.0) * 100.0).round() as u32;
    if fraction < 1.0 { percent.min(99) } else { percent }
}

impl Progress {
    /// Returns this progress with the final state of the job. The fraction of a completed job is set to 1.
    pub(crate) fn with_final_state(mut self, final_state: Option<JobState>) -> Self {
        if final_state == Some(JobState::Completed) {
            self.fraction = Some(1.0);
        }
        Self { over: final_state, ..self }
    }
}

impl FromRow<'_, PgRow> for Progress {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let counts: Option<&str> = row.try_get("counts")?;
        Ok(Self {
            fraction: row.try_get("fraction")?,
            stage: row.try_get("stage")?,
            // Only this library writes the counts, so decoding is not expected to fail. Counts that cannot be decoded are ignored.
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
