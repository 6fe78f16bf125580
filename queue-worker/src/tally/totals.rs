//! Sums of attempt outcomes since the process started, for monitoring systems. A limited number of queue and type pairs have separate sums.
//! All other pairs share one sum. This module performs no I/O.

use std::collections::BTreeMap;

use super::counts::{ALL_OTHERS, CounterRow, OutcomeCounters};

/// Maximum number of queue and type pairs with separate sums. The first pairs with counts keep their sums while the process runs, because
/// each replacement would create another series in the monitoring system.
const MAX_NAMED: usize = 50;

/// Sums by queue and type since the start of the process.
#[derive(Clone, Default)]
pub(super) struct Totals {
    named: BTreeMap<(String, String), OutcomeCounters>,
    other: OutcomeCounters,
    any_other: bool,
}

impl Totals {
    pub(super) fn add(&mut self, row: &CounterRow) {
        self.of(&row.queue, &row.job_type).add_all(&row.counts);
    }

    fn of(&mut self, queue: &str, job_type: &str) -> &mut OutcomeCounters {
        let key = (queue.to_owned(), job_type.to_owned());
        let has_room = self.named.len() < MAX_NAMED && queue != ALL_OTHERS;
        if has_room || self.named.contains_key(&key) {
            return self.named.entry(key).or_default();
        }
        self.any_other = true;
        &mut self.other
    }

    /// Returns the sums, each with its queue and type.
    pub(super) fn into_rows(self) -> Vec<(String, String, OutcomeCounters)> {
        let Self { named, other, any_other } = self;
        let other = any_other.then(|| (OutcomeCounters::OTHER.to_owned(), OutcomeCounters::OTHER.to_owned(), other));
        named.into_iter().map(|((queue, job_type), counts)| (queue, job_type, counts)).chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(queue: &str, completed: i64) -> CounterRow {
        CounterRow {
            queue: queue.to_owned(),
            job_type: "t".to_owned(),
            counts: OutcomeCounters { completed, ..OutcomeCounters::default() },
        }
    }

    #[test]
    fn ten_thousand_queues_are_fifty_and_one_for_the_others() {
        let mut totals = Totals::default();
        for _ in 0..2 {
            (0..10_000).for_each(|nth| totals.add(&row(&format!("q{nth}"), 1)));
        }
        totals.add(&row(ALL_OTHERS, 7));
        let rows = totals.into_rows();
        let completed = |name: &str| rows.iter().find(|(queue, ..)| queue == name).map(|(.., counts)| counts.completed);
        assert_eq!((rows.len(), completed("q0"), completed("q9999")), (MAX_NAMED + 1, Some(2), None));
        assert_eq!(completed(OutcomeCounters::OTHER), Some(2 * (10_000 - MAX_NAMED as i64) + 7), "nothing is left out");
    }
}
