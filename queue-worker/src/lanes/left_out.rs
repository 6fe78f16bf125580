//! What a claim leaves out of its answer: payloads that are too large, and jobs of other days than those of its lanes.
//!
//! A claim brings payloads of up to its share of what may come at once, which costs small ones nothing. What it left out is read afterwards, in the
//! order of the jobs, as many as fit; the other jobs are given back, and the next claims of their lanes ask for fewer.

use std::collections::HashMap;

use queue_core::{JobId, Store, runner::OrderingKey};
use sqlx::{PgConnection, Row as _, ValueRef as _, postgres::PgRow};

use crate::live::bounded;

/// The most bytes of payloads that a claim brings, but for the first of those that are large, which comes whatever it has.
pub(super) const LARGEST: usize = 32 * 1024 * 1024;

/// Lanes with smaller payloads are not remembered: as many as any claim asks for are few bytes.
const SMALL: usize = 1024;

/// Smaller ones wait for no others.
const WEIGHS: usize = 16 * 1024;

/// The columns of a job, from its claim's answer or read apart.
#[derive(Default)]
pub(super) struct Stored {
    /// `None` if there is no such job.
    pub(super) max_attempts: Option<i16>,
    pub(super) payload: Option<String>,
    pub(super) key: Option<OrderingKey>,
    pub(super) meta: Option<String>,
    pub(super) system: Option<String>,
}

impl Stored {
    /// The columns of the job in this row of a claim.
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

/// Reads the jobs that the claim left out of these rows, with the payload of the first, however large, and of as many more as fit. The flag tells
/// whether a job's payload is still unread.
pub(super) async fn read(connection: &mut PgConnection, store: Store, rows: &[PgRow]) -> sqlx::Result<HashMap<JobId, (Stored, bool)>> {
    let (mut left_out, mut bytes) = (Vec::<JobId>::new(), 0);
    for row in rows {
        let payload = row.try_get_raw(6)?;
        if payload.is_null() {
            left_out.push(row.try_get_unchecked(2)?);
        } else {
            bytes += payload.as_bytes().map_or(0, <[u8]>::len);
        }
    }
    if left_out.is_empty() {
        return Ok(HashMap::new());
    }
    // The oldest first, as they are claimed.
    left_out.sort_unstable();
    let statement = sqlx::query(store.sql(include_str!("../../sql/left_out.sql"))).bind(left_out);
    let statement = statement.bind(i64::try_from(LARGEST.saturating_sub(bytes)).unwrap_or(i64::MAX));
    let read = |row: &PgRow| {
        let system: Option<String> = row.try_get("system")?;
        let of_it = Stored {
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

/// How many jobs with payloads of this size a claim may ask for: half as many as fit, for some are larger than the last.
pub(super) fn fitting(bytes: usize) -> usize {
    (LARGEST / 2 / bytes.max(1)).max(1)
}

/// Whether payloads of this size wait where many bytes are in hand. As many smaller ones as there are slots are few bytes.
pub(super) fn weighs(bytes: usize) -> bool {
    bytes >= WEIGHS
}

/// Whether a lane's size is to be remembered.
pub(super) fn is_large(bytes: usize) -> bool {
    bytes > SMALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_asks_for_half_of_what_fits_and_for_one_at_least() {
        assert_eq!((fitting(2 * LARGEST), fitting(LARGEST), fitting(LARGEST / 8), is_large(10)), (1, 1, 4, false));
    }
}
