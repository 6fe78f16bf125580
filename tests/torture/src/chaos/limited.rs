//! Limits under faults: a part of the jobs goes into queues that have one, and what began is held against it. Pure but for the setting.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use queue_core::{Limit, Store, operate};

use super::{
    history::{Entry, Line},
    inject::Fault,
    plan::{Kind, TTL},
    server::Database,
};

/// So many run at once in the one queue.
const AT_ONCE: u32 = 6;

/// So many begin in the other within so long.
const RATE: (u32, Duration) = (60, Duration::from_secs(2));

/// The queue of a job of this number.
pub(super) fn queue(n: u64) -> &'static str {
    match n % 8 {
        0 => "chaos_limited",
        1 => "chaos_rated",
        _ => "chaos",
    }
}

/// Whether a limit may keep it waiting.
pub(super) fn is_limited(n: u64) -> bool {
    queue(n) != "chaos"
}

pub(super) async fn set(database: &Database) -> Result<()> {
    let store = Store::default();
    operate::set_limit(&database.pool, store, "queue:chaos_limited", Limit::new().concurrency(AT_ONCE), None).await?;
    operate::set_limit(&database.pool, store, "queue:chaos_rated", Limit::new().rate(RATE.0, RATE.1), None).await?;
    Ok(())
}

/// More than a limit says.
#[derive(Debug, Default)]
pub(super) struct Over {
    pub(super) concurrency: usize,
    pub(super) rate: usize,
    /// How many began under each.
    pub(super) begun: [usize; 2],
    pub(super) notes: Vec<String>,
}

struct Span {
    n: u64,
    who: String,
    from: u64,
    until: Option<u64>,
}

/// Counts starts at which more ran than may, and starts at whose end a window has more than may begin in it.
pub(super) fn check(history: &[Entry], faults: &[Fault]) -> Over {
    let (mut spans, mut over) = (spans(history), Over::default());
    // A process that stood still may have been stopped between a handler's beginning and its first line.
    let went_on = |span: &Span| {
        let near = |fault: &&Fault| fault.kind == Kind::Stop && fault.who == span.who && span.from.abs_diff(fault.until) < 100_000;
        faults.iter().any(|fault| near(&fault))
    };
    for span in &mut spans {
        let killed = faults.iter().find(|fault| fault.kind == Kind::Kill && fault.who == span.who).map(|fault| fault.from);
        // Without an end it was killed, or is of a process that the run ended.
        let until = span.until.or(killed).unwrap_or(span.from);
        // Others may have its permit once its lease is over, while it stands still and does nothing.
        let stood_still = faults.iter().filter(|fault| fault.kind == Kind::Stop && fault.who == span.who);
        let lost = stood_still.map(|fault| fault.from).filter(|from| *from < until && *from + 100_000 > span.from).min();
        let lost = lost.map(|from| from + (TTL * 2 / 3).as_micros() as u64);
        span.until = Some(lost.map_or(until, |lost| until.min(lost)));
    }
    let of = |name: &str| spans.iter().filter(|span| queue(span.n) == name && !went_on(span)).collect::<Vec<_>>();
    let (limited, rated) = (of("chaos_limited"), of("chaos_rated"));
    over.begun = [limited.len(), rated.len()];
    for (place, span) in limited.iter().enumerate() {
        let beside = limited[..place].iter().filter(|other| other.until.is_some_and(|until| until > span.from)).count();
        if beside >= AT_ONCE as usize {
            over.concurrency += 1;
            over.note(|| format!("over concurrency: {} began at {} beside {beside} others", span.n, span.from));
        }
    }
    let window = RATE.1.as_micros() as u64;
    for (place, span) in rated.iter().enumerate() {
        let within = rated[..=place].iter().rev().take_while(|other| other.from + window > span.from).count();
        if within > RATE.0 as usize {
            over.rate += 1;
            over.note(|| format!("over rate: {} began at {} as number {within} of its window", span.n, span.from));
        }
    }
    over
}

/// Each run of a handler, in the order of their starts.
fn spans(history: &[Entry]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: HashMap<(u64, &str, u32), usize> = HashMap::new();
    for entry in history {
        match entry.line {
            Line::Start(n, _, attempt) => {
                open.insert((n, &entry.who, attempt), spans.len());
                spans.push(Span { n, who: entry.who.clone(), from: entry.at, until: None });
            }
            Line::End(n, _, attempt, _) | Line::Dropped(n, attempt) => {
                if let Some(place) = open.remove(&(n, entry.who.as_str(), attempt)) {
                    spans[place].until = Some(entry.at);
                }
            }
            _ => {}
        }
    }
    spans
}

impl Over {
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < 20 {
            self.notes.push(text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: u64, line: Line) -> Entry {
        Entry { at, who: "w".to_owned(), line }
    }

    #[test]
    fn one_too_many_is_seen() {
        let seconds = |n: u64| n * 1_000_000;
        let starts = |jobs: u64, which: u64| (0..jobs).map(move |n| line(n, Line::Start(8 * n + which, 1, 1))).collect::<Vec<_>>();
        let ends = |jobs: u64| (0..jobs).map(move |n| line(seconds(1), Line::End(8 * n, 1, 1, true)));
        let fine: Vec<Entry> = starts(6, 0).into_iter().chain(ends(6)).collect();
        assert_eq!(check(&fine, &[]).concurrency, 0);
        let many: Vec<Entry> = starts(7, 0).into_iter().chain(ends(7)).collect();
        assert_eq!(check(&many, &[]).concurrency, 1);
        let dropped: Vec<Entry> = [line(0, Line::Start(0, 1, 1)), line(1, Line::Dropped(0, 1))]
            .into_iter()
            .chain(starts(6, 0).split_off(1))
            .chain(ends(6))
            .collect();
        assert_eq!(check(&dropped, &[]).concurrency, 0);
        assert_eq!((check(&starts(60, 1), &[]).rate, check(&starts(61, 1), &[]).rate), (0, 1));
    }
}
