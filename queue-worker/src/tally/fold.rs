//! What is said at once: a bounded number of rows, whatever the number of queues. Pure.

use std::cmp::Reverse;

use super::counts::{REST, Row};

/// The most rows of one statement by their own names.
const MOST: usize = 100;

/// Those that tell of most stay, and all others are one.
pub(super) fn fold(rows: Vec<Row>) -> Vec<Row> {
    let (mut named, mut rest): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.queue != REST);
    named.sort_by_key(|row| Reverse(row.counts.size()));
    rest.extend(named.drain(MOST.min(named.len())..));
    if let Some(mut one) = rest.pop() {
        for row in &rest {
            one.counts.add_all(&row.counts);
        }
        (one.queue, one.job_type) = (REST.to_owned(), REST.to_owned());
        named.push(one);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::counts::Counts;

    fn row(queue: &str, completed: i64) -> Row {
        Row { queue: queue.to_owned(), job_type: "t".to_owned(), counts: Counts { completed, ..Counts::default() } }
    }

    #[test]
    fn ten_thousand_queues_are_a_hundred_rows_and_one_for_the_rest() {
        let rows = (0..10_000).map(|nth| row(&format!("q{nth}"), 1 + nth % 7_000)).chain([row(REST, 5)]).collect();
        let folded = fold(rows);
        assert_eq!(folded.len(), MOST + 1);
        let sum: i64 = folded.iter().map(|row| row.counts.completed).sum();
        assert_eq!(sum, (0..10_000).map(|nth| 1 + nth % 7_000).sum::<i64>() + 5, "nothing is left out");
        let least = folded[..MOST].iter().map(|row| row.counts.completed).min();
        assert_eq!((least, folded[0].counts.completed), (Some(6_901), 7_000), "the busiest have their names");
        assert_eq!((folded[MOST].queue.as_str(), folded[MOST].job_type.as_str()), (REST, REST));
    }

    #[test]
    fn few_queues_have_a_row_each() {
        assert_eq!(fold((0..100).map(|nth| row(&nth.to_string(), 1)).collect()).len(), 100);
        assert!(fold(Vec::new()).is_empty());
    }
}
