//! Attempt counters by outcome. This module performs no I/O.

use std::time::Duration;

use queue_core::{options::Outcome, runner::HistoryOutcome};

use crate::live::Timings;

/// Queue and type name of the entry that counts all queues and types without a separate entry.
pub(super) const ALL_OTHERS: &str = "*";

/// Number that identifies a queue within this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueNumber(pub(super) u32);

/// Way in which an attempt ended. The metrics record it in addition to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEndKind {
    Normal,
    TimedOut,
    Panicked,
    /// The worker lost the lease, so the job belongs to another worker.
    LeaseLost,
}

impl AttemptEndKind {
    /// Returns the kind for a handler's outcome.
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::TimedOut => Self::TimedOut,
            Outcome::Panicked => Self::Panicked,
            _ => Self::Normal,
        }
    }
}

/// Properties of an attempt for the metrics, recorded once the attempt's verdict has been written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedAttempt {
    pub(crate) queue: QueueNumber,
    pub(crate) job_type: &'static str,
    pub(crate) end_kind: AttemptEndKind,
    /// Delay from the time at which the job became ready to the start of the attempt.
    pub(crate) start: Duration,
}

/// Attempt counters by outcome, with histograms of durations.
#[derive(Clone, Default)]
pub(crate) struct OutcomeCounters {
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

impl OutcomeCounters {
    /// Metrics label for all queues and types without separate metrics.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) const OTHER: &str = "other";

    /// Counts one attempt with its outcome and duration.
    pub(super) fn add(&mut self, attempt: &CountedAttempt, counted: HistoryOutcome, ran: Duration) {
        if attempt.end_kind == AttemptEndKind::LeaseLost {
            self.lease_lost += 1;
            return;
        }
        let count = match counted {
            HistoryOutcome::Completed => &mut self.completed,
            HistoryOutcome::Retried => &mut self.retried,
            HistoryOutcome::Dead => &mut self.dead,
            HistoryOutcome::Cancelled => &mut self.cancelled,
            HistoryOutcome::Snoozed => &mut self.snoozed,
            // The attempt was interrupted, or a rate limit prevented its start. Its duration has no meaning.
            HistoryOutcome::Released => return self.released += 1,
            // The job ended without an attempt. Expired jobs are counted separately.
            HistoryOutcome::NoAttempt => return,
        };
        *count += 1;
        self.timed_out += i64::from(attempt.end_kind == AttemptEndKind::TimedOut);
        self.panicked += i64::from(attempt.end_kind == AttemptEndKind::Panicked);
        self.run.record(ran);
        self.start.record(attempt.start);
    }

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

    /// Returns the number of attempts by outcome, as pairs of label and count.
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

    /// Returns the number of timeouts and panics, as pairs of label and count.
    #[cfg(any(feature = "metrics", feature = "otel"))]
    pub(crate) fn failures(&self) -> [(&'static str, i64); 2] {
        [("timeout", self.timed_out), ("panic", self.panicked)]
    }

    /// Returns the total number of counted events. Rows are ranked by this number.
    pub(super) fn size(&self) -> i64 {
        let Self { completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, .. } = self;
        completed + retried + dead + cancelled + snoozed + released + expired + lease_lost
    }
}

/// Counters of one queue and job type.
#[derive(Clone)]
pub(super) struct CounterRow {
    pub(super) queue: String,
    pub(super) job_type: String,
    pub(super) counts: OutcomeCounters,
}
