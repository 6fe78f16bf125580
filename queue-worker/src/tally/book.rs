//! The counts of a process by queue and job type, since they were last taken. Does not touch the database.
//!
//! Most are noted by the settle loop, under one lock for all that one statement wrote: handlers neither wait for it nor for each other. Once a
//! queue and type are known, an attempt costs a look at the few types of its queue and some additions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use queue_core::{JobId, runner::Counted};

use super::counts::{Attempt, Counts, QueueNumber, REST, Row};
#[cfg(any(feature = "metrics", feature = "otel"))]
use super::totals::Totals;

/// What this process has counted and not said yet.
#[derive(Clone, Default)]
pub(crate) struct Tallies(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    numbers: HashMap<String, QueueNumber>,
    /// By number.
    queues: Vec<OfQueue>,
    /// Said of jobs that did not run here.
    others: HashMap<(String, String), Counts>,
    /// Of which queue and type they are is not known here.
    expired: Vec<JobId>,
    /// What was taken since the begin, if anybody wants to know.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    totals: Option<Box<Totals>>,
}

struct OfQueue {
    name: String,
    types: Vec<OfType>,
}

struct OfType {
    name: &'static str,
    counts: Box<Counts>,
    any: bool,
    /// How often in a row there was nothing to take.
    idle: u8,
}

/// What was taken.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) rows: Vec<Row>,
    pub(super) expired: Vec<JobId>,
}

/// So many queues and types of jobs that ran elsewhere, and so many jobs that expired, are kept apart until they are said.
const MOST_OTHERS: usize = 1000;
const MOST_EXPIRED: usize = 10_000;

/// What had nothing for so often is forgotten until it has something again.
const FORGET: u8 = 6;

impl Tallies {
    /// Stands for this queue from now on.
    pub(crate) fn queue(&self, name: &str) -> QueueNumber {
        let mut book = self.book();
        if let Some(known) = book.numbers.get(name) {
            return *known;
        }
        let number = QueueNumber(u32::try_from(book.queues.len()).unwrap_or(u32::MAX));
        book.numbers.insert(name.to_owned(), number);
        book.queues.push(OfQueue { name: name.to_owned(), types: Vec::new() });
        number
    }

    /// The verdicts on these attempts are written; each ran for so long.
    pub(crate) fn note(&self, attempts: impl Iterator<Item = (Attempt, Counted, Duration)>) {
        let mut book = self.book();
        for (attempt, counted, ran) in attempts {
            if let Some(counts) = book.counts(&attempt) {
                counts.add(&attempt, counted, ran);
            }
        }
    }

    /// These were over before anybody began them.
    pub(super) fn note_expired(&self, jobs: &[JobId]) {
        let mut book = self.book();
        let room = MOST_EXPIRED.saturating_sub(book.expired.len()).min(jobs.len());
        book.expired.extend(&jobs[..room]);
        if room < jobs.len() {
            book.other(REST, REST).expired += (jobs.len() - room) as i64;
        }
    }

    /// So many attempts ended with their processes; of their jobs so many are dead letters and so many are cancelled.
    pub(crate) fn note_crashed(&self, queue: &str, job_type: &str, [jobs, dead, cancelled]: [i64; 3]) {
        let mut book = self.book();
        let counts = book.other(queue, job_type);
        counts.crashed += jobs;
        counts.dead += dead;
        counts.cancelled += cancelled;
        counts.retried += jobs - dead - cancelled;
    }

    /// All that was noted since the last call.
    pub(super) fn take(&self) -> Taken {
        let mut book = self.book();
        let mut rows = Vec::new();
        for OfQueue { name: queue, types } in &mut book.queues {
            for of in types.iter_mut() {
                if std::mem::take(&mut of.any) {
                    of.idle = 0;
                    rows.push(Row { queue: queue.clone(), job_type: of.name.to_owned(), counts: std::mem::take(&mut *of.counts) });
                } else {
                    of.idle += 1;
                }
            }
            types.retain(|of| of.idle < FORGET);
        }
        rows.extend(book.others.drain().map(|((queue, job_type), counts)| Row { queue, job_type, counts }));
        book.keep(&rows);
        Taken { rows, expired: std::mem::take(&mut book.expired) }
    }

    /// Of these it has become known only now that they were counted.
    pub(super) fn note_late(&self, rows: &[Row]) {
        self.book().keep(rows);
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(any(feature = "metrics", feature = "otel"))]
impl Tallies {
    /// From here on what is taken is added up, too.
    pub(crate) fn keep_totals(&self) {
        self.book().totals.get_or_insert_default();
    }

    /// All that was counted since then, by queue and type. Jobs that expired are in it once it is known of which queue and type they are.
    pub(crate) fn totals(&self) -> Vec<(String, String, Counts)> {
        let book = self.book();
        let mut totals = book.totals.as_deref().cloned().unwrap_or_default();
        for OfQueue { name, types } in &book.queues {
            for of in types.iter().filter(|of| of.any) {
                totals.add(&Row { queue: name.clone(), job_type: of.name.to_owned(), counts: (*of.counts).clone() });
            }
        }
        for ((queue, job_type), counts) in &book.others {
            totals.add(&Row { queue: queue.clone(), job_type: job_type.clone(), counts: counts.clone() });
        }
        drop(book);
        totals.into_rows()
    }
}

impl Book {
    /// `None` of a number that was never given out.
    fn counts(&mut self, attempt: &Attempt) -> Option<&mut Counts> {
        let types = &mut self.queues.get_mut(attempt.queue.0 as usize)?.types;
        let place = types.iter().position(|of| of.name == attempt.job_type).unwrap_or_else(|| {
            types.push(OfType { name: attempt.job_type, counts: Box::default(), any: false, idle: 0 });
            types.len() - 1
        });
        types[place].any = true;
        Some(&mut types[place].counts)
    }

    /// Adds it to what is never taken.
    #[cfg_attr(not(any(feature = "metrics", feature = "otel")), expect(clippy::unused_self, reason = "nobody wants to know"))]
    fn keep(&mut self, rows: &[Row]) {
        #[cfg(any(feature = "metrics", feature = "otel"))]
        if let Some(totals) = &mut self.totals {
            for row in rows {
                totals.add(row);
            }
        }
        #[cfg(not(any(feature = "metrics", feature = "otel")))]
        let _ = rows;
    }

    fn other(&mut self, queue: &str, job_type: &str) -> &mut Counts {
        let has_room = self.others.len() < MOST_OTHERS;
        let key = (queue.to_owned(), job_type.to_owned());
        let key = if has_room || self.others.contains_key(&key) { key } else { (REST.to_owned(), REST.to_owned()) };
        self.others.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use queue_core::operate::Histogram;

    use super::*;
    use crate::tally::counts::How;

    fn attempt(queue: QueueNumber, job_type: &'static str) -> Attempt {
        Attempt { queue, job_type, how: How::Plainly, start: Duration::from_millis(3) }
    }

    /// The only row for this queue.
    fn row(taken: &Taken, queue: &str) -> Counts {
        let mut rows = taken.rows.iter().filter(|row| row.queue == queue);
        let row = rows.next().unwrap();
        assert!(rows.next().is_none());
        row.counts.clone()
    }

    #[test]
    fn what_was_noted_is_taken_once() {
        let tallies = Tallies::default();
        let (one, other) = (tallies.queue("one"), tallies.queue("other"));
        assert_eq!((tallies.queue("one"), one == other), (one, false));
        let ran = Duration::from_millis(7);
        tallies.note([(attempt(one, "t"), Counted::Completed, ran), (attempt(one, "t"), Counted::Retried, ran)].into_iter());
        let lost = Attempt { how: How::LeaseLost, ..attempt(other, "t") };
        let late = Attempt { how: How::TimedOut, ..attempt(other, "t") };
        tallies.note([(lost, Counted::Completed, ran), (late, Counted::Dead, ran), (late, Counted::NoAttempt, ran)].into_iter());
        tallies.note_crashed("one", "u", [5, 2, 1]);
        let mut taken = tallies.take();
        assert_eq!(taken.rows.len(), 3);
        let counts = row(&taken, "other");
        assert_eq!((counts.completed, counts.lease_lost, counts.dead, counts.timed_out, counts.run.count()), (0, 1, 1, 1, 1));
        let crashed = taken.rows.extract_if(.., |row| row.job_type == "u").next().unwrap().counts;
        assert_eq!((crashed.crashed, crashed.dead, crashed.cancelled, crashed.retried), (5, 2, 1, 2));
        let counts = row(&taken, "one");
        let mut expected = Histogram::default();
        expected.record(ran);
        expected.record(ran);
        assert_eq!((counts.completed, counts.retried, counts.run.lengths), (1, 1, expected));
        assert!(tallies.take().rows.is_empty());
    }

    #[test]
    fn what_has_nothing_for_long_is_forgotten_and_comes_again() {
        let tallies = Tallies::default();
        let queue = tallies.queue("q");
        for _ in 0..2 {
            tallies.note(std::iter::once((attempt(queue, "t"), Counted::Completed, Duration::ZERO)));
            assert_eq!(tallies.take().rows.len(), 1);
            for _ in 0..FORGET {
                assert_eq!(tallies.book().queues[0].types.len(), 1);
                assert!(tallies.take().rows.is_empty());
            }
            assert!(tallies.book().queues[0].types.is_empty());
        }
    }

    #[test]
    fn of_jobs_elsewhere_so_many_are_kept_apart() {
        let tallies = Tallies::default();
        let ids = vec![JobId(1); MOST_EXPIRED];
        (0..3).for_each(|_| tallies.note_expired(&ids));
        (0..2 * MOST_OTHERS).for_each(|nth| tallies.note_crashed(&nth.to_string(), "t", [1, 0, 0]));
        let taken = tallies.take();
        let rest = row(&taken, REST);
        assert_eq!((taken.expired.len(), rest.expired), (MOST_EXPIRED, 2 * MOST_EXPIRED as i64));
        assert_eq!(taken.rows.iter().map(|row| row.counts.crashed).sum::<i64>(), 2 * MOST_OTHERS as i64);
        assert!(taken.rows.len() <= MOST_OTHERS + 1);
    }

    /// `cargo test -p queue-worker --release -- --ignored --nocapture what_an_attempt_costs`
    #[test]
    #[ignore = "by hand: measures the cost of an attempt"]
    fn what_an_attempt_costs() {
        let tallies = Tallies::default();
        let queue = tallies.queue("q");
        let batch: Vec<_> = (0..500).map(|nth| (attempt(queue, "t"), Counted::Completed, Duration::from_micros(nth * 40))).collect();
        let began = Instant::now();
        for _ in 0..20_000 {
            tallies.note(std::hint::black_box(&batch).iter().copied());
        }
        println!("{:?} an attempt, 500 at a time", began.elapsed() / 10_000_000);
        assert_eq!(tallies.take().rows[0].counts.completed, 10_000_000);
    }
}
