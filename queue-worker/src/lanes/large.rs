//! Payloads that are too large to come with their claim.
//!
//! A claim brings payloads of up to its share of what may come at once, which costs small ones nothing. Larger ones are read afterwards, as
//! many as fit; jobs whose payloads do not are given back, and the next claims of their lanes ask for fewer.

use std::collections::HashMap;

use queue_core::{JobId, Store};
use sqlx::{PgConnection, Row as _, ValueRef as _, postgres::PgRow};

use crate::live::bounded;

/// The most bytes of payloads that a claim brings, but for the first of those that are large, which comes whatever it has.
pub(super) const LARGEST: usize = 32 * 1024 * 1024;

/// Lanes with smaller payloads are not remembered: as many as any claim asks for are few bytes.
const SMALL: usize = 1024;

/// Smaller ones wait for no others.
const WEIGHS: usize = 16 * 1024;

/// Reads payloads that the claim of these rows left out: the first, however large, and as many more as fit.
pub(super) async fn read(connection: &mut PgConnection, store: Store, rows: &[PgRow]) -> sqlx::Result<HashMap<JobId, String>> {
    let (mut unread, mut bytes) = (Vec::new(), 0);
    for row in rows {
        let payload = row.try_get_raw(6)?;
        if !payload.is_null() {
            bytes += payload.as_bytes().map_or(0, <[u8]>::len);
        } else if !row.try_get_raw(5)?.is_null() {
            unread.push(row.try_get_unchecked(2)?);
        }
    }
    let mut read = HashMap::new();
    if unread.is_empty() {
        return Ok(read);
    }
    // The oldest first, as they are claimed.
    unread.sort_unstable();
    let mut look = Look { left: LARGEST.saturating_sub(bytes), least: LARGEST / rows.len().max(1), many: None };
    while let Some((count, most)) = look.next(unread.len()) {
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/payloads.sql")));
        let statement = statement.bind(&unread[..count]).bind(i32::try_from(most).unwrap_or(i32::MAX));
        let found: Vec<(JobId, Option<String>)> = bounded(statement.fetch_all(&mut *connection)).await?;
        let found: HashMap<JobId, String> = found.into_iter().filter_map(|(id, payload)| Some((id, payload?))).collect();
        look.came(count, found.len(), found.values().map(String::len).sum());
        unread.retain(|id| !found.contains_key(id));
        read.extend(found);
    }
    Ok(read)
}

/// How many payloads to ask for next.
struct Look {
    /// So many bytes may still come.
    left: usize,
    /// Each has more.
    least: usize,
    /// As many as are likely to come at once; none before the first.
    many: Option<usize>,
}

impl Look {
    /// How many of these to ask for, and of how many bytes each at most; none when no more fit.
    fn next(&self, unread: usize) -> Option<(usize, usize)> {
        let Some(many) = self.many else { return (unread > 0).then_some((1, usize::MAX)) };
        let count = many.min(unread).min(self.left / self.least.max(1));
        (count > 0).then(|| (count, self.left / count))
    }

    /// Of so many that were asked for so many came, with so many bytes.
    fn came(&mut self, asked: usize, came: usize, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.many = Some(match self.many {
            None => (self.left / bytes.max(1)).max(1),
            Some(_) if came == asked => asked * 2,
            Some(_) if came == 0 => asked / 4,
            Some(_) => asked.div_ceil(2),
        });
    }
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

    /// What is read of payloads of these sizes, beside so many bytes that came with the claim.
    fn read_of(sizes: &[usize], beside: usize) -> (Vec<usize>, usize) {
        let (mut unread, mut read, mut looks) = (sizes.to_vec(), Vec::new(), 0);
        let mut look = Look { left: LARGEST - beside, least: LARGEST / 500, many: None };
        while let Some((count, most)) = look.next(unread.len()) {
            let (found, others): (Vec<_>, Vec<_>) = unread[..count].iter().partition(|size| **size <= most);
            look.came(count, found.len(), found.iter().sum());
            unread = others.into_iter().chain(unread[count..].to_vec()).collect();
            read.extend(found);
            looks += 1;
        }
        (read, looks)
    }

    #[test]
    fn as_many_large_payloads_are_read_as_fit_in_few_looks() {
        const MB: usize = 1024 * 1024;
        assert_eq!(read_of(&[], 0), (vec![], 0));
        assert_eq!(read_of(&[100 * MB], LARGEST), (vec![100 * MB], 1), "the first, however large");
        assert_eq!(read_of(&[100 * MB; 2], 0), (vec![100 * MB], 1));
        assert_eq!(read_of(&[LARGEST / 400; 300], 0).0.len(), 300);
        for (size, fit) in [(MB, 25..=32), (MB / 4, 100..=128), (4 * MB, 6..=8)] {
            let (read, looks) = read_of(&[size; 500], 0);
            assert!(fit.contains(&read.len()) && looks < 40, "{size}: {} in {looks} looks", read.len());
        }
        let mixed: Vec<usize> = (0..500).map(|n| if n % 2 == 0 { MB } else { MB / 10 }).collect();
        let (read, looks) = read_of(&mixed, LARGEST / 2);
        assert!(read.iter().sum::<usize>() <= LARGEST / 2 && looks < 40, "{looks} looks");
    }

    #[test]
    fn a_claim_asks_for_half_of_what_fits_and_for_one_at_least() {
        assert_eq!((fitting(2 * LARGEST), fitting(LARGEST), fitting(LARGEST / 8), is_large(10)), (1, 1, 4, false));
    }
}
