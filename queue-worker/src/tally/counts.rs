//! What is counted of attempts. Pure.

use std::time::Duration;

use queue_core::{Outcome, runner::Counted};

use crate::live::Timings;

/// The name of those that have none of their own.
pub(super) const REST: &str = "*";

/// Stands for a queue's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueNumber(pub(super) u32);

/// How an attempt ended, beside its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Plainly,
    TimedOut,
    Panicked,
    /// Others have the job.
    LeaseLost,
}

impl How {
    /// By what its handler made of it.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Panicked => Self::Panicked,
            _ => Self::Plainly,
        }
    }
}

/// What is to be known of an attempt once its verdict is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) queue: QueueNumber,
    pub(crate) job_type: &'static str,
    pub(crate) how: How,
    /// How long its job had been ready when it began.
    pub(crate) start: Duration,
}

/// What came of some attempts.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(super) completed: i64,
    pub(super) retried: i64,
    pub(super) dead: i64,
    pub(super) cancelled: i64,
    pub(super) snoozed: i64,
    pub(super) released: i64,
    pub(crate) expired: i64,
    pub(super) lease_lost: i64,
    pub(super) timed_out: i64,
    pub(super) panicked: i64,
    pub(crate) crashed: i64,
    pub(crate) run: Timings,
    pub(crate) start: Timings,
}

impl Counts {
    /// Stands for the queues and types that have no figures of their own.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) const OTHER: &str = "other";

    /// One more attempt, which ran for so long.
    pub(super) fn add(&mut self, attempt: &Attempt, counted: Counted, ran: Duration) {
        if attempt.how == How::LeaseLost {
            self.lease_lost += 1;
            return;
        }
        let count = match counted {
            Counted::Completed => &mut self.completed,
            Counted::Retried => &mut self.retried,
            Counted::Dead => &mut self.dead,
            Counted::Cancelled => &mut self.cancelled,
            Counted::Snoozed => &mut self.snoozed,
            // Broken off, or not begun under a rate: how long that took says nothing.
            Counted::Released => return self.released += 1,
            // Whoever ends it says so.
            Counted::NoAttempt => return,
        };
        *count += 1;
        self.timed_out += i64::from(attempt.how == How::TimedOut);
        self.panicked += i64::from(attempt.how == How::Panicked);
        self.run.record(ran);
        self.start.record(attempt.start);
    }

    /// All of it, too.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.completed += other.completed;
        self.retried += other.retried;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.snoozed += other.snoozed;
        self.released += other.released;
        self.expired += other.expired;
        self.lease_lost += other.lease_lost;
        self.timed_out += other.timed_out;
        self.panicked += other.panicked;
        self.crashed += other.crashed;
        self.run.add(&other.run);
        self.start.add(&other.start);
    }

    /// Of each outcome how many attempts had it.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn outcomes(&self) -> [(&'static str, i64); 7] {
        let Self { completed, retried, dead, cancelled, snoozed, released, lease_lost, .. } = *self;
        [
            ("completed", completed),
            ("retried", retried),
            ("dead", dead),
            ("cancelled", cancelled),
            ("snoozed", snoozed),
            ("released", released),
            ("lease_lost", lease_lost),
        ]
    }

    /// Of those that failed, how many did so without a word.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn failures(&self) -> [(&'static str, i64); 2] {
        [("timeout", self.timed_out), ("panic", self.panicked)]
    }

    /// How much it tells of.
    pub(super) fn size(&self) -> i64 {
        let Self { completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, .. } = self;
        completed + retried + dead + cancelled + snoozed + released + expired + lease_lost
    }
}

/// The counts of one queue and type.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) counts: Counts,
}
