//! Limits under faults. Some jobs go into limited queues, and the recorded starts are compared with the limits. All functions except
//! `set` are pure.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use queue_core::{Queue, Store, options::Limit};

use super::{
    history::{Entry, Line},
    inject::Fault,
    plan::{Kind, TTL},
    server::Database,
};

/// Concurrency limit of the queue `chaos_limited`.
const MAX_CONCURRENT: u32 = 6;

/// Rate limit of the queue `chaos_rated`: maximum number of starts per period.
const RATE: (u32, Duration) = (60, Duration::from_secs(2));

/// Concurrency limit of each key in the queue `chaos_keyed`.
const MAX_CONCURRENT_OF_KEY: u32 = 2;
const RATE_OF_KEY: (u32, Duration) = (20, Duration::from_secs(2));

/// Returns the queue of the job with number `n`.
pub(super) fn queue(n: u64) -> &'static str {
    match n % 16 {
        0 | 8 => "chaos_limited",
        1 | 9 => "chaos_rated",
        2 => "chaos_keyed",
        _ => "chaos",
    }
}

/// Returns the key of the job with number `n`, if the job is in a queue with per-key limits.
pub(super) fn key(n: u64) -> Option<u64> {
    (queue(n) == "chaos_keyed").then_some(n / 16 % 4)
}

/// Returns whether a limit may delay the job with number `n`.
pub(super) fn is_limited(n: u64) -> bool {
    queue(n) != "chaos"
}

pub(super) async fn set(database: &Database) -> Result<()> {
    let store = Store::default();
    Queue::new(&database.pool).store(store).set_limit("queue:chaos_limited", Limit::new().concurrency(MAX_CONCURRENT), None).await?;
    Queue::new(&database.pool).store(store).set_limit("queue:chaos_rated", Limit::new().rate(RATE.0, RATE.1), None).await?;
    let of_key = Limit::new().concurrency(MAX_CONCURRENT_OF_KEY).rate(RATE_OF_KEY.0, RATE_OF_KEY.1).keyed();
    Queue::new(&database.pool).store(store).set_limit("queue:chaos_keyed", of_key, None).await?;
    Ok(())
}

/// Numbers of starts and of limit violations.
#[derive(Debug, Default)]
pub(super) struct LimitViolations {
    pub(super) concurrency: usize,
    pub(super) rate: usize,
    /// Number of starts in each limited queue.
    pub(super) begun: [usize; 3],
    pub(super) notes: Vec<String>,
}

struct Span {
    n: u64,
    who: String,
    from: u64,
    until: Option<u64>,
}

/// Checks all limited queues. Counts the starts that exceed a concurrency limit, and the starts that exceed a rate limit.
pub(super) fn check(history: &[Entry], faults: &[Fault]) -> LimitViolations {
    let (mut spans, mut violations) = (spans(history), LimitViolations::default());
    // A process may have been stopped between the start of a handler and the handler's first line. The recorded start is then too late,
    // so the execution is not checked.
    let was_stopped_at_start = |span: &Span| {
        let near = |fault: &&Fault| fault.kind == Kind::Stop && fault.who == span.who && span.from.abs_diff(fault.until) < 100_000;
        faults.iter().any(|fault| near(&fault))
    };
    for span in &mut spans {
        let killed = faults.iter().find(|fault| fault.kind == Kind::Kill && fault.who == span.who).map(|fault| fault.from);
        // If an execution has no recorded end, its process was killed or was stopped at the end of the run. The execution counts as ended
        // at the time of the kill, or at its own start if the process was not killed.
        let until = span.until.or(killed).unwrap_or(span.from);
        // After the lease of a stopped process has expired, another process may take the permit, so the execution no longer counts.
        let stood_still = faults.iter().filter(|fault| fault.kind == Kind::Stop && fault.who == span.who);
        let lost = stood_still.map(|fault| fault.from).filter(|from| *from < until && *from + 100_000 > span.from).min();
        let lost = lost.map(|from| from + (TTL * 2 / 3).as_micros() as u64);
        span.until = Some(lost.map_or(until, |lost| until.min(lost)));
    }
    let of = |name: &str| spans.iter().filter(|span| queue(span.n) == name && !was_stopped_at_start(span)).collect::<Vec<_>>();
    let (limited, rated, keyed) = (of("chaos_limited"), of("chaos_rated"), of("chaos_keyed"));
    violations.begun = [limited.len(), rated.len(), keyed.len()];
    violations.check_concurrency(&limited, MAX_CONCURRENT);
    violations.check_rate(&rated, RATE);
    for key in 0..4 {
        let of_key: Vec<&Span> = keyed.iter().copied().filter(|span| self::key(span.n) == Some(key)).collect();
        violations.check_concurrency(&of_key, MAX_CONCURRENT_OF_KEY);
        violations.check_rate(&of_key, RATE_OF_KEY);
    }
    violations
}

/// Returns all executions, ordered by start.
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

impl LimitViolations {
    /// Checks that at most `most` of the executions run at the same time. The executions must be ordered by start.
    fn check_concurrency(&mut self, spans: &[&Span], most: u32) {
        for (place, span) in spans.iter().enumerate() {
            let beside = spans[..place].iter().filter(|other| other.until.is_some_and(|until| until > span.from)).count();
            if beside >= most as usize {
                self.concurrency += 1;
                self.note(|| format!("over concurrency: {} started at {} beside {beside} others", span.n, span.from));
            }
        }
    }

    /// Checks that at most `most` executions start within any period.
    fn check_rate(&mut self, spans: &[&Span], (most, period): (u32, Duration)) {
        let window = period.as_micros() as u64;
        for (place, span) in spans.iter().enumerate() {
            let within = spans[..=place].iter().rev().take_while(|other| other.from + window > span.from).count();
            if within > most as usize {
                self.rate += 1;
                self.note(|| format!("over rate: {} started at {} as number {within} of its period", span.n, span.from));
            }
        }
    }

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
    fn violations_are_detected() {
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
        // The first eight jobs are two jobs of each of the four keys. The ninth job is the third job of its key and exceeds the limit.
        let of_keys = |jobs: u64| (0..jobs).map(|n| line(0, Line::Start(16 * n + 2, 1, 1))).collect::<Vec<_>>();
        let found = |jobs| check(&of_keys(jobs), &[]);
        let ends = (0..9).map(|n| line(1, Line::End(16 * n + 2, 1, 1, true)));
        let many: Vec<Entry> = of_keys(9).into_iter().chain(ends.clone()).collect();
        let fine: Vec<Entry> = of_keys(8).into_iter().chain(ends.take(8)).collect();
        assert_eq!((check(&fine, &[]).concurrency, check(&many, &[]).concurrency), (0, 1));
        assert_eq!((found(80).rate, found(81).rate), (0, 1));
    }
}
