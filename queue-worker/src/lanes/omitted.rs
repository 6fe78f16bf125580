//! Jobs whose columns a claim omits: jobs with large payloads, and jobs outside the id range that the claim reads.
//!
//! A claim returns a payload only if its size does not exceed an equal share of the claim's byte limit. Afterwards, the omitted jobs are
//! read in order until the byte limit is reached. The remaining jobs are released, and the next claims of their lanes request fewer jobs.

use std::collections::HashMap;

use queue_core::{JobId, Store, runner::OrderingKey};
use sqlx::{PgConnection, Row as _, ValueRef as _, postgres::PgRow};

use crate::live::bounded;

/// Maximum total payload size of a claim in bytes. The first large payload is always read, regardless of its size.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Mean payload size in bytes up to which no size is recorded for a lane. Even a full claim of such payloads is small.
const SMALL_BYTES: usize = 1024;

/// Minimum payload size in bytes at which a job waits for free payload memory.
const LARGE_BYTES: usize = 16 * 1024;

/// Columns of a job, read with the claim or separately.
#[derive(Default)]
pub(super) struct JobColumns {
    /// Maximum number of attempts. `None` if the job no longer exists.
    pub(super) max_attempts: Option<i16>,
    pub(super) payload: Option<String>,
    pub(super) key: Option<OrderingKey>,
    pub(super) meta: Option<String>,
    pub(super) system: Option<String>,
}

impl JobColumns {
    /// Reads a job's columns from a row of a claim.
    pub(super) fn of(row: &PgRow, payload: Option<String>) -> sqlx::Result<Self> {
        let system: Option<String> = row.try_get_unchecked(9)?;
        Ok(Self {
            max_attempts: row.try_get_unchecked(5)?,
            payload,
            key: OrderingKey::of(row.try_get_unchecked(7)?, system.as_deref()),
            meta: row.try_get_unchecked(8)?,
            system,
        })
    }
}

/// Reads the job columns that `rows` omit. Reads the first payload regardless of its size, and further payloads up to the byte limit. The
/// returned flag is `true` for jobs whose payload was not read.
pub(super) async fn read(connection: &mut PgConnection, store: Store, rows: &[PgRow]) -> sqlx::Result<HashMap<JobId, (JobColumns, bool)>> {
    let (mut omitted, mut bytes) = (Vec::<JobId>::new(), 0);
    for row in rows {
        let payload = row.try_get_raw(6)?;
        if payload.is_null() {
            omitted.push(row.try_get_unchecked(2)?);
        } else {
            bytes += payload.as_bytes().map_or(0, <[u8]>::len);
        }
    }
    if omitted.is_empty() {
        return Ok(HashMap::new());
    }
    // The statement reads the jobs in order of their ids, oldest job first.
    omitted.sort_unstable();
    let statement = sqlx::query(store.sql(include_str!("../../sql/unread_payloads.sql"))).bind(omitted);
    let statement = statement.bind(i64::try_from(MAX_BYTES.saturating_sub(bytes)).unwrap_or(i64::MAX));
    let read = |row: &PgRow| {
        let system: Option<String> = row.try_get("system")?;
        let of_it = JobColumns {
            max_attempts: row.try_get("max_attempts")?,
            payload: row.try_get("payload")?,
            key: OrderingKey::of(row.try_get("key")?, system.as_deref()),
            meta: row.try_get("meta")?,
            system,
        };
        Ok((row.try_get("id")?, (of_it, row.try_get("is_unread")?)))
    };
    bounded(statement.fetch_all(connection)).await?.iter().map(read).collect()
}

/// Returns the maximum number of jobs per claim for payloads of `bytes` bytes. The result is half of the number that fits into a claim,
/// because sizes vary.
pub(super) fn max_jobs(bytes: usize) -> usize {
    (MAX_BYTES / 2 / bytes.max(1)).max(1)
}

/// Returns whether jobs with payloads of `bytes` bytes wait for free payload memory. Smaller payloads are negligible even if they fill
/// all slots.
pub(super) fn waits_for_memory(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

/// Returns whether a payload size of `bytes` bytes is recorded for its lane.
pub(super) fn is_recorded_size(bytes: usize) -> bool {
    bytes > SMALL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_requests_half_of_the_jobs_that_fit_and_at_least_one() {
        assert_eq!((max_jobs(2 * MAX_BYTES), max_jobs(MAX_BYTES), max_jobs(MAX_BYTES / 8), is_recorded_size(10)), (1, 1, 4, false));
    }
}
