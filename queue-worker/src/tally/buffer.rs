//! Attempt counts of a process by queue and job type, buffered since the last flush. This module does not access the database.
//!
//! The settle loop records most counts and takes the lock once per statement, not once per verdict. Handlers never wait for this lock.
//! Recording an attempt of a known job type costs a linear search in the queue's job types and a few additions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use queue_core::{JobId, runner::HistoryOutcome};

use super::counts::{ALL_OTHERS, CountedAttempt, CounterRow, OutcomeCounters, QueueNumber};
#[cfg(any(feature = "metrics", feature = "otel"))]
use super::totals::Totals;

/// Counts of this process that have not been flushed yet.
#[derive(Clone, Default)]
pub(crate) struct MetricsBuffer(Arc<Mutex<BufferState>>);

#[derive(Default)]
struct BufferState {
    numbers: HashMap<String, QueueNumber>,
    /// Counters of all queues, indexed by queue number.
    queues: Vec<QueueCounters>,
    /// Counts for jobs that did not run in this process, by queue and type.
    others: HashMap<(String, String), OutcomeCounters>,
    /// Ids of expired jobs. The jobs' queues and types are loaded on the next flush.
    expired: Vec<JobId>,
    /// Sums since `enable_totals` was called. `None` unless metrics are exported.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    totals: Option<Box<Totals>>,
}

struct QueueCounters {
    name: String,
    types: Vec<TypeCounters>,
}

struct TypeCounters {
    name: &'static str,
    counts: Box<OutcomeCounters>,
    any: bool,
    /// Number of consecutive flushes without counts.
    idle: u8,
}

/// Counts and expired jobs taken from the buffer for a flush.
#[derive(Default)]
pub(super) struct BufferSnapshot {
    pub(super) rows: Vec<CounterRow>,
    pub(super) expired: Vec<JobId>,
}

/// Maximum number of pairs of queue and type that are buffered for jobs of other processes. Jobs of further pairs are counted under
/// [`ALL_OTHERS`].
const MAX_OTHERS: usize = 1000;
/// Maximum number of buffered ids of expired jobs. Further expired jobs are counted under [`ALL_OTHERS`].
const MAX_EXPIRED: usize = 10_000;

/// Number of consecutive flushes without counts after which a type's counters are removed. New counts add the type again.
const MAX_IDLE_FLUSHES: u8 = 6;

impl MetricsBuffer {
    /// Returns the queue's number. Assigns a number to a new queue.
    pub(crate) fn queue(&self, name: &str) -> QueueNumber {
        let mut state = self.state();
        if let Some(known) = state.numbers.get(name) {
            return *known;
        }
        let number = QueueNumber(u32::try_from(state.queues.len()).unwrap_or(u32::MAX));
        state.numbers.insert(name.to_owned(), number);
        state.queues.push(QueueCounters { name: name.to_owned(), types: Vec::new() });
        number
    }

    /// Records attempts whose verdicts have been written, with their outcomes and durations.
    pub(crate) fn record(&self, attempts: impl Iterator<Item = (CountedAttempt, HistoryOutcome, Duration)>) {
        let mut state = self.state();
        for (attempt, counted, ran) in attempts {
            if let Some(counts) = state.counts(&attempt) {
                counts.add(&attempt, counted, ran);
            }
        }
    }

    /// Records jobs that expired before they started.
    pub(super) fn record_expired(&self, jobs: &[JobId]) {
        let mut state = self.state();
        let room = MAX_EXPIRED.saturating_sub(state.expired.len()).min(jobs.len());
        state.expired.extend(&jobs[..room]);
        if room < jobs.len() {
            state.other(ALL_OTHERS, ALL_OTHERS).expired += (jobs.len() - room) as i64;
        }
    }

    /// Records attempts that ended because their process crashed. `jobs` is the number of attempts. `dead` and `cancelled` are the numbers
    /// of attempts whose jobs became dead letters or were cancelled.
    pub(crate) fn record_crashed(&self, queue: &str, job_type: &str, [jobs, dead, cancelled]: [i64; 3]) {
        let mut state = self.state();
        let counts = state.other(queue, job_type);
        counts.crashed += jobs;
        counts.dead += dead;
        counts.cancelled += cancelled;
        counts.retried += jobs - dead - cancelled;
    }

    /// Takes all counts recorded since the last call.
    pub(super) fn take(&self) -> BufferSnapshot {
        let mut state = self.state();
        let mut rows = Vec::new();
        for QueueCounters { name: queue, types } in &mut state.queues {
            for of in types.iter_mut() {
                if std::mem::take(&mut of.any) {
                    of.idle = 0;
                    rows.push(CounterRow { queue: queue.clone(), job_type: of.name.to_owned(), counts: std::mem::take(&mut *of.counts) });
                } else {
                    of.idle += 1;
                }
            }
            types.retain(|of| of.idle < MAX_IDLE_FLUSHES);
        }
        rows.extend(state.others.drain().map(|((queue, job_type), counts)| CounterRow { queue, job_type, counts }));
        state.add_to_totals(&rows);
        BufferSnapshot { rows, expired: std::mem::take(&mut state.expired) }
    }

    /// Adds rows to the totals. [`Self::take`] could not add these rows, because their queue and type had to be loaded first.
    pub(super) fn add_late(&self, rows: &[CounterRow]) {
        self.state().add_to_totals(rows);
    }

    /// Locks the counts. A poisoned lock stays usable, because a panic cannot leave the counts half-updated.
    fn state(&self) -> MutexGuard<'_, BufferState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(any(feature = "metrics", feature = "otel"))]
impl MetricsBuffer {
    /// Enables the totals, which are the sums of all counts.
    pub(crate) fn enable_totals(&self) {
        self.state().totals.get_or_insert_default();
    }

    /// Returns the sums since [`Self::enable_totals`] was called, by queue and type. Expired jobs are included once their queue and type
    /// have been loaded.
    pub(crate) fn totals(&self) -> Vec<(String, String, OutcomeCounters)> {
        let state = self.state();
        let mut totals = state.totals.as_deref().cloned().unwrap_or_default();
        for QueueCounters { name, types } in &state.queues {
            for of in types.iter().filter(|of| of.any) {
                totals.add(&CounterRow { queue: name.clone(), job_type: of.name.to_owned(), counts: (*of.counts).clone() });
            }
        }
        for ((queue, job_type), counts) in &state.others {
            totals.add(&CounterRow { queue: queue.clone(), job_type: job_type.clone(), counts: counts.clone() });
        }
        drop(state);
        totals.into_rows()
    }
}

impl BufferState {
    /// Returns the counters for an attempt, or `None` if the attempt's queue number was never assigned.
    fn counts(&mut self, attempt: &CountedAttempt) -> Option<&mut OutcomeCounters> {
        let types = &mut self.queues.get_mut(attempt.queue.0 as usize)?.types;
        let position = types.iter().position(|of| of.name == attempt.job_type).unwrap_or_else(|| {
            types.push(TypeCounters { name: attempt.job_type, counts: Box::default(), any: false, idle: 0 });
            types.len() - 1
        });
        types[position].any = true;
        Some(&mut types[position].counts)
    }

    /// Adds rows to the totals, which are never reset.
    #[cfg_attr(not(any(feature = "metrics", feature = "otel")), expect(clippy::unused_self, reason = "totals exist only with metrics"))]
    fn add_to_totals(&mut self, rows: &[CounterRow]) {
        #[cfg(any(feature = "metrics", feature = "otel"))]
        if let Some(totals) = &mut self.totals {
            for row in rows {
                totals.add(row);
            }
        }
        #[cfg(not(any(feature = "metrics", feature = "otel")))]
        let _ = rows;
    }

    fn other(&mut self, queue: &str, job_type: &str) -> &mut OutcomeCounters {
        let has_room = self.others.len() < MAX_OTHERS;
        let key = (queue.to_owned(), job_type.to_owned());
        let key = if has_room || self.others.contains_key(&key) { key } else { (ALL_OTHERS.to_owned(), ALL_OTHERS.to_owned()) };
        self.others.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use queue_core::operate::Histogram;

    use super::*;
    use crate::tally::counts::AttemptEndKind;

    fn attempt(queue: QueueNumber, job_type: &'static str) -> CountedAttempt {
        CountedAttempt { queue, job_type, end_kind: AttemptEndKind::Normal, start: Duration::from_millis(3) }
    }

    /// Returns the only row of `queue`.
    fn row(snapshot: &BufferSnapshot, queue: &str) -> OutcomeCounters {
        let mut rows = snapshot.rows.iter().filter(|row| row.queue == queue);
        let row = rows.next().unwrap();
        assert!(rows.next().is_none());
        row.counts.clone()
    }

    #[test]
    fn counts_are_taken_once() {
        let metrics = MetricsBuffer::default();
        let (one, other) = (metrics.queue("one"), metrics.queue("other"));
        assert_eq!((metrics.queue("one"), one == other), (one, false));
        let ran = Duration::from_millis(7);
        metrics
            .record([(attempt(one, "t"), HistoryOutcome::Completed, ran), (attempt(one, "t"), HistoryOutcome::Retried, ran)].into_iter());
        let lost = CountedAttempt { end_kind: AttemptEndKind::LeaseLost, ..attempt(other, "t") };
        let late = CountedAttempt { end_kind: AttemptEndKind::TimedOut, ..attempt(other, "t") };
        metrics.record(
            [(lost, HistoryOutcome::Completed, ran), (late, HistoryOutcome::Dead, ran), (late, HistoryOutcome::NoAttempt, ran)].into_iter(),
        );
        metrics.record_crashed("one", "u", [5, 2, 1]);
        let mut snapshot = metrics.take();
        assert_eq!(snapshot.rows.len(), 3);
        let counts = row(&snapshot, "other");
        assert_eq!((counts.completed, counts.lease_lost, counts.dead, counts.timed_out, counts.run.count()), (0, 1, 1, 1, 1));
        let crashed = snapshot.rows.extract_if(.., |row| row.job_type == "u").next().unwrap().counts;
        assert_eq!((crashed.crashed, crashed.dead, crashed.cancelled, crashed.retried), (5, 2, 1, 2));
        let counts = row(&snapshot, "one");
        let mut expected = Histogram::default();
        expected.record(ran);
        expected.record(ran);
        assert_eq!((counts.completed, counts.retried, counts.run.lengths), (1, 1, expected));
        assert!(metrics.take().rows.is_empty());
    }

    #[test]
    fn idle_types_are_removed_and_added_again() {
        let metrics = MetricsBuffer::default();
        let queue = metrics.queue("q");
        for _ in 0..2 {
            metrics.record(std::iter::once((attempt(queue, "t"), HistoryOutcome::Completed, Duration::ZERO)));
            assert_eq!(metrics.take().rows.len(), 1);
            for _ in 0..MAX_IDLE_FLUSHES {
                assert_eq!(metrics.state().queues[0].types.len(), 1);
                assert!(metrics.take().rows.is_empty());
            }
            assert!(metrics.state().queues[0].types.is_empty());
        }
    }

    #[test]
    fn separate_entries_are_limited() {
        let metrics = MetricsBuffer::default();
        let ids = vec![JobId(1); MAX_EXPIRED];
        (0..3).for_each(|_| metrics.record_expired(&ids));
        (0..2 * MAX_OTHERS).for_each(|nth| metrics.record_crashed(&nth.to_string(), "t", [1, 0, 0]));
        let snapshot = metrics.take();
        let rest = row(&snapshot, ALL_OTHERS);
        assert_eq!((snapshot.expired.len(), rest.expired), (MAX_EXPIRED, 2 * MAX_EXPIRED as i64));
        assert_eq!(snapshot.rows.iter().map(|row| row.counts.crashed).sum::<i64>(), 2 * MAX_OTHERS as i64);
        assert!(snapshot.rows.len() <= MAX_OTHERS + 1);
    }

    /// Measures the cost of `record`. Run with `cargo test -p queue-worker --release -- --ignored --nocapture what_an_attempt_costs`.
    #[test]
    #[ignore = "by hand: measures the cost of an attempt"]
    fn what_an_attempt_costs() {
        let metrics = MetricsBuffer::default();
        let queue = metrics.queue("q");
        let batch: Vec<_> = (0..500).map(|nth| (attempt(queue, "t"), HistoryOutcome::Completed, Duration::from_micros(nth * 40))).collect();
        let began = Instant::now();
        for _ in 0..20_000 {
            metrics.record(std::hint::black_box(&batch).iter().copied());
        }
        println!("{:?} an attempt, 500 at a time", began.elapsed() / 10_000_000);
        assert_eq!(metrics.take().rows[0].counts.completed, 10_000_000);
    }
}
