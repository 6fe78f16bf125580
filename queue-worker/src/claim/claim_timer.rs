//! Decides when a claimer sends its next claim. Does not access the database.

use std::time::{Duration, Instant};

use super::key_scan::KeyScan;
use crate::{
    lanes::LimitOutcome,
    live::{ClaimNotice, ClaimerState},
};

/// Schedule of a claimer's next claim, derived from the results of earlier claims and from notices of new jobs and released permits.
pub(super) struct ClaimTimer {
    next: NextClaim,
    /// Minimum time between a claim that found every lane empty and the next claim.
    pause: Duration,
    /// Whether the last claim returned as many jobs as requested.
    is_full: bool,
    /// Whether a notice of new jobs has arrived since the last claim was sent.
    has_notice: bool,
    /// Whether a notice of released permits has arrived since the last claim was sent.
    has_permit_notice: bool,
    /// Number of consecutive claims that returned no job. Determines the backoff under a rate limit.
    misses: u32,
    /// Progress of the search for a key that has a free permit.
    key_scan: KeyScan,
    /// Expected time from sending a claim to the start of its jobs. A rate limit counts each job as started at the end of this time.
    start_slack: Duration,
}

/// Condition under which a claimer sends its next claim.
#[derive(Clone, Copy)]
enum NextClaim {
    /// Immediately, because the lanes may contain more ready jobs than the last claim returned.
    Now,
    /// On the next notice of jobs, but not before the given time, because all lanes were empty.
    OnNotice(Instant),
    /// At the given time, or earlier on a notice of released permits. Applies while a limit prevents claims.
    OnPermit(Instant),
    /// At the given time, regardless of notices, because the last claim failed or a handler requested a slow-down.
    AfterBackoff(Instant),
    /// On the next notice of jobs, but not before the first time. If no such notice arrives, at the second time, or earlier on a notice of
    /// released permits. Applies while none of the keys with waiting jobs has a free permit.
    OnKey(Instant, Instant),
}

/// Maximum delay before a claim under an exhausted limit is retried, if no notice of released permits arrives.
pub(super) const LIMIT_RETRY: Duration = Duration::from_secs(1);

/// Retry delay while some workers have not acknowledged the limit.
const UNKNOWN_LIMIT_RETRY: Duration = Duration::from_millis(50);

/// Minimum time between a claim under limits that found no job and the next claim.
const EMPTY_RETRY: Duration = Duration::from_millis(5);

/// Maximum start slack learned from slow claims. The start slack is the expected time from a claim to the start of its jobs.
const MAX_SLACK: Duration = Duration::from_secs(1);
/// Maximum start slack after jobs have started too late.
const MAX_LATE_SLACK: Duration = Duration::from_hours(1);

impl ClaimTimer {
    pub(super) fn new(is_limited: bool) -> Self {
        Self {
            next: NextClaim::OnNotice(Instant::now()),
            pause: if is_limited { EMPTY_RETRY } else { Duration::ZERO },
            is_full: false,
            has_notice: false,
            has_permit_notice: false,
            misses: 0,
            key_scan: KeyScan::default(),
            start_slack: Duration::ZERO,
        }
    }

    /// Returns whether the last claim returned as many jobs as requested.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the expected time from the next claim to the start of the claimed jobs.
    pub(super) fn start_slack(&self) -> Duration {
        self.start_slack
    }

    /// Records notices of new jobs, released permits and late job starts.
    pub(super) fn record_notice(&mut self, notice: &ClaimNotice) {
        self.has_notice |= notice.jobs;
        if notice.permit {
            self.has_permit_notice = true;
            if matches!(self.next, NextClaim::OnPermit(_) | NextClaim::OnKey(..)) {
                self.next = NextClaim::Now;
            }
        }
        if notice.late {
            self.record_late_start();
        }
    }

    /// Returns the time of the next claim, or `None` if the claimer must wait for a notice of jobs. A pending late scan also makes a
    /// claim due.
    pub(super) fn due(&self, now: Instant, late_scan_at: Option<Instant>) -> Option<Instant> {
        match self.next {
            NextClaim::Now => Some(now),
            NextClaim::OnNotice(at) => self.has_notice.then_some(at).into_iter().chain(late_scan_at).min(),
            NextClaim::OnPermit(at) | NextClaim::AfterBackoff(at) => Some(at),
            NextClaim::OnKey(earliest, at) => Some(if self.has_notice { earliest.min(at) } else { at }),
        }
    }

    /// Returns whether the claimer is backing off. While backing off, the claimer sends no statement, not even a report of released
    /// permits.
    pub(super) fn is_backing_off(&self) -> bool {
        matches!(self.next, NextClaim::AfterBackoff(at) if Instant::now() < at)
    }

    /// Returns the claimer's state as published to other tasks.
    pub(super) fn state(&self, now: Instant, late_scan_at: Option<Instant>) -> ClaimerState {
        match self.next {
            NextClaim::OnNotice(_) if self.has_notice || late_scan_at.is_some_and(|at| now >= at) => ClaimerState::Active,
            NextClaim::OnNotice(_) => ClaimerState::Resting,
            NextClaim::Now => ClaimerState::Active,
            // The claim is due or in flight.
            NextClaim::OnPermit(at) | NextClaim::AfterBackoff(at) if at <= now => ClaimerState::Active,
            NextClaim::OnPermit(_) | NextClaim::AfterBackoff(_) => ClaimerState::Closed,
            NextClaim::OnKey(..) => ClaimerState::ClosedByKey,
        }
    }

    /// Returns whether the claimer is waiting for a notice of jobs.
    pub(super) fn is_resting(&self) -> bool {
        matches!(self.next, NextClaim::OnNotice(_)) && !self.has_notice
    }

    /// Discards the results of earlier claims under limits. A claim is then due immediately, unless the claimer is resting until the next
    /// notice of jobs.
    pub(super) fn reopen(&mut self) {
        if !matches!(self.next, NextClaim::OnNotice(_)) {
            self.next = NextClaim::Now;
        }
        (self.misses, self.has_permit_notice, self.key_scan) = (0, true, KeyScan::default());
    }

    /// Suspends claiming until the next notice of new jobs. Called when no lane can return a job.
    pub(super) fn rest(&mut self) {
        (self.next, self.has_notice) = (NextClaim::OnNotice(Instant::now() + self.pause), false);
    }

    /// Makes a claim due immediately.
    pub(super) fn resume(&mut self) {
        self.next = NextClaim::Now;
    }

    /// Prevents claims until `at`, but for at most [`LIMIT_RETRY`].
    pub(super) fn back_off_until(&mut self, at: Instant) {
        self.next = NextClaim::AfterBackoff(at.min(Instant::now() + LIMIT_RETRY));
    }

    pub(super) fn sent(&mut self) {
        (self.has_permit_notice, self.has_notice) = (false, false);
    }

    /// Records the time from a claim under a rate limit to the start of its jobs.
    pub(super) fn record_start_latency(&mut self, latency: Duration) {
        self.start_slack = (latency * 4).min(MAX_SLACK).max(self.start_slack.mul_f64(0.75));
    }

    /// Doubles the expected time from a claim to the start of its jobs, because jobs started too late. Otherwise, all later jobs might also
    /// start too late.
    fn record_late_start(&mut self) {
        self.start_slack = (self.start_slack * 2).clamp(EMPTY_RETRY, MAX_LATE_SLACK);
        if self.start_slack > MAX_SLACK {
            tracing::warn!(
                seconds = self.start_slack.as_secs_f64(),
                "jobs under a rate limit start long after their claim, which lowers the rate; check the worker's middleware and the disk"
            );
        }
    }

    /// Records the result of a claim that requested `most` jobs and returned `count`.
    pub(super) fn record_claim(&mut self, outcome: LimitOutcome, (count, most): (usize, usize), took: Duration) {
        let now = Instant::now();
        self.is_full = count >= most;
        self.misses = if count > 0 { 0 } else { self.misses.saturating_add(1) };
        if count > 0 {
            self.key_scan.record_hit();
        }
        // Claims that find no key with a free permit may take at most 5 % of the claimer's time.
        let earliest = now + EMPTY_RETRY.max(20 * took);
        self.next = match outcome {
            // A permit was released after the claim was sent, so the claim may have missed the permit.
            LimitOutcome::Full | LimitOutcome::Keys(_) if self.has_permit_notice => NextClaim::Now,
            LimitOutcome::Keys(wait) => NextClaim::OnKey(earliest, now + wait.unwrap_or(LIMIT_RETRY).min(LIMIT_RETRY)),
            LimitOutcome::More(_) if count > 0 => NextClaim::Now,
            LimitOutcome::More(part) => {
                self.key_scan.record_miss(part, took, now, LIMIT_RETRY).map_or(NextClaim::Now, |at| NextClaim::OnKey(earliest, at))
            }
            LimitOutcome::Open if count >= most && most > 0 => NextClaim::Now,
            LimitOutcome::Open => NextClaim::OnNotice(now + self.pause),
            LimitOutcome::Full | LimitOutcome::Gone => NextClaim::OnPermit(now + LIMIT_RETRY),
            // A worker that repeatedly finds no permit backs off, so that other workers get permits.
            LimitOutcome::Later(wait) => {
                let patience = if self.misses > 1 {
                    LIMIT_RETRY.min(EMPTY_RETRY * 2_u32.pow(self.misses.min(8))).mul_f64(0.5 + fastrand::f64())
                } else {
                    Duration::ZERO
                };
                NextClaim::OnPermit(now + wait.max(patience).min(Duration::from_hours(1)))
            }
            LimitOutcome::Unknown => NextClaim::OnPermit(now + UNKNOWN_LIMIT_RETRY),
            LimitOutcome::Locked => NextClaim::OnPermit(now + LIMIT_RETRY * 2),
        };
    }
}
