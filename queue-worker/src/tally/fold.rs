//! Row limit per flush, independent of the number of queues. This module performs no I/O.

use std::cmp::Reverse;

use super::counts::{ALL_OTHERS, CounterRow};

/// Maximum number of rows per flush that keep their queue and type.
const MAX_ROWS: usize = 100;

/// Keeps the rows with the most events, and merges the remaining rows into one row.
pub(super) fn fold(rows: Vec<CounterRow>) -> Vec<CounterRow> {
    let (mut named, mut rest): (Vec<CounterRow>, Vec<CounterRow>) = rows.into_iter().partition(|row| row.queue != ALL_OTHERS);
    named.sort_by_key(|row| Reverse(row.counts.size()));
    rest.extend(named.drain(MAX_ROWS.min(named.len())..));
    if let Some(mut one) = rest.pop() {
        for row in &rest {
            one.counts.add_all(&row.counts);
        }
        (one.queue, one.job_type) = (ALL_OTHERS.to_owned(), ALL_OTHERS.to_owned());
        named.push(one);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::counts::OutcomeCounters;

    fn row(queue: &str, completed: i64) -> CounterRow {
        CounterRow {
            queue: queue.to_owned(),
            job_type: "t".to_owned(),
            counts: OutcomeCounters { completed, ..OutcomeCounters::default() },
        }
    }

    #[test]
    fn ten_thousand_queues_are_a_hundred_rows_and_one_for_the_rest() {
        let rows = (0..10_000).map(|nth| row(&format!("q{nth}"), 1 + nth % 7_000)).chain([row(ALL_OTHERS, 5)]).collect();
        let folded = fold(rows);
        assert_eq!(folded.len(), MAX_ROWS + 1);
        let sum: i64 = folded.iter().map(|row| row.counts.completed).sum();
        assert_eq!(sum, (0..10_000).map(|nth| 1 + nth % 7_000).sum::<i64>() + 5, "nothing is left out");
        let least = folded[..MAX_ROWS].iter().map(|row| row.counts.completed).min();
        assert_eq!((least, folded[0].counts.completed), (Some(6_901), 7_000), "the busiest keep their names");
        assert_eq!((folded[MAX_ROWS].queue.as_str(), folded[MAX_ROWS].job_type.as_str()), (ALL_OTHERS, ALL_OTHERS));
    }

    #[test]
    fn few_queues_have_a_row_each() {
        assert_eq!(fold((0..100).map(|nth| row(&nth.to_string(), 1)).collect()).len(), 100);
        assert!(fold(Vec::new()).is_empty());
    }
}
