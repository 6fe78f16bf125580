//! What a process has counted since it began, for whoever adds up over time: of so many queues and types by themselves, and of all others as one. Pure.

use std::collections::BTreeMap;

use super::counts::{Counts, REST, Row};

/// So many queues and types have figures of their own: the first that have any. A monitor keeps each for ever.
const MOST: usize = 50;

/// By queue and type.
#[derive(Clone, Default)]
pub(super) struct Totals {
    named: BTreeMap<(String, String), Counts>,
    other: Counts,
    any_other: bool,
}

impl Totals {
    /// This has been counted, too.
    pub(super) fn add(&mut self, row: &Row) {
        self.of(&row.queue, &row.job_type).add_all(&row.counts);
    }

    fn of(&mut self, queue: &str, job_type: &str) -> &mut Counts {
        let key = (queue.to_owned(), job_type.to_owned());
        let has_room = self.named.len() < MOST && queue != REST;
        if has_room || self.named.contains_key(&key) {
            return self.named.entry(key).or_default();
        }
        self.any_other = true;
        &mut self.other
    }

    /// Each with its queue and its type.
    pub(super) fn into_rows(self) -> Vec<(String, String, Counts)> {
        let Self { named, other, any_other } = self;
        let other = any_other.then(|| (Counts::OTHER.to_owned(), Counts::OTHER.to_owned(), other));
        named.into_iter().map(|((queue, job_type), counts)| (queue, job_type, counts)).chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(queue: &str, completed: i64) -> Row {
        Row { queue: queue.to_owned(), job_type: "t".to_owned(), counts: Counts { completed, ..Counts::default() } }
    }

    #[test]
    fn ten_thousand_queues_are_fifty_and_one_for_the_others() {
        let mut totals = Totals::default();
        for _ in 0..2 {
            (0..10_000).for_each(|nth| totals.add(&row(&format!("q{nth}"), 1)));
        }
        totals.add(&row(REST, 7));
        let rows = totals.into_rows();
        let completed = |name: &str| rows.iter().find(|(queue, ..)| queue == name).map(|(.., counts)| counts.completed);
        assert_eq!((rows.len(), completed("q0"), completed("q9999")), (MOST + 1, Some(2), None));
        assert_eq!(completed(Counts::OTHER), Some(2 * (10_000 - MOST as i64) + 7), "nothing is left out");
    }
}
