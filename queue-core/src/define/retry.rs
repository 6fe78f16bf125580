//! What happens to a job after an attempt. Pure: no clock, no database, no dice of its own.
//!
//! [`verdict`] is the only place that decides between another try and a dead letter.

use std::time::Duration;

/// How long to wait before the next attempt.
///
/// The wait after attempt `n` is `base` (fixed), `base * n` (linear) or `base * 2^(n-1)` (exponential), at most `max`, then moved
/// by up to `jitter` of itself in either direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    growth: Growth,
    base: Duration,
    max: Duration,
    jitter: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    Fixed,
    Linear,
    Exponential,
}

/// Longest wait that a handler may ask for: 100 years.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(100 * 366 * 24);

/// No backoff is longer than this, whatever the options say.
const LONGEST: Duration = Duration::from_hours(30 * 24);

impl Backoff {
    /// Exponential from 5 s to at most 6 h, with a jitter of 0.1.
    pub const DEFAULT: Self = Self::exponential(Duration::from_secs(5)).max(Duration::from_hours(6)).jitter(0.1);

    /// The same wait each time.
    pub const fn fixed(base: Duration) -> Self {
        Self { growth: Growth::Fixed, base, max: LONGEST, jitter: 0.0 }
    }

    /// `base`, then twice, then three times `base`.
    pub const fn linear(base: Duration) -> Self {
        Self { growth: Growth::Linear, base, max: LONGEST, jitter: 0.0 }
    }

    /// `base`, then doubled after each attempt.
    pub const fn exponential(base: Duration) -> Self {
        Self { growth: Growth::Exponential, base, max: LONGEST, jitter: 0.0 }
    }

    /// No wait is longer than `max` (before jitter). Default 30 days, which is also the most.
    #[must_use]
    pub const fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// Spreads waits by up to this share of themselves, 0 to 1, so that jobs that failed together do not return together. Default 0.
    #[must_use]
    pub const fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// The wait after attempt number `attempt` (the first is 1). `dice` is drawn evenly from 0 to 1 by the caller.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use queue_core::Backoff;
    /// let backoff = Backoff::exponential(Duration::from_secs(1)).max(Duration::from_secs(60));
    /// assert_eq!(backoff.wait(3, 0.5), Duration::from_secs(4));
    /// assert_eq!(backoff.wait(1_000_000, 0.5), Duration::from_secs(60));
    /// ```
    pub fn wait(&self, attempt: u32, dice: f64) -> Duration {
        let base = self.base.as_nanos();
        let grown = match self.growth {
            Growth::Fixed => base,
            Growth::Linear => base.saturating_mul(attempt.max(1).into()),
            Growth::Exponential => base.saturating_mul(1_u128.checked_shl(attempt.saturating_sub(1)).unwrap_or(u128::MAX)),
        };
        let most = self.max.min(LONGEST);
        let wait = if grown < most.as_nanos() { Duration::from_nanos(grown as u64) } else { most };
        // `clamp` keeps what is no number, and a `Duration` times that panics.
        let share = |number: f64, otherwise: f64| if number.is_nan() { otherwise } else { number.clamp(0.0, 1.0) };
        let spread = 1.0 + share(self.jitter, 0.0) * (2.0 * share(dice, 0.5) - 1.0);
        wait.mul_f64(spread)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What came of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler returned its output.
    Ok,
    /// The handler returned an error that another try may mend.
    Failed,
    /// The handler chose its own wait.
    RetryIn(Duration),
    /// The handler said that no try will mend it, or its payload cannot be read.
    Terminal,
    /// The handler panicked.
    Panicked,
    /// The attempt took longer than the type's timeout.
    TimedOut,
    /// The handler asked to be called again later, without having failed.
    Snoozed(Duration),
    /// The handler of a durable job waits for a signal, for so long at most.
    Parked(Option<Duration>),
    /// The handler of a durable job began it anew, with another payload.
    Restarted,
    /// The attempt was broken off by a shutdown, or never began.
    Interrupted,
    /// Somebody cancelled the job.
    Cancelled,
}

impl Outcome {
    /// In one word, as spans have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::RetryIn(_) => "retry_in",
            Self::Terminal => "terminal",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::Snoozed(_) => "snoozed",
            Self::Parked(_) => "parked",
            Self::Restarted => "restarted",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is written for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done.
    Complete,
    /// Failed; another attempt after this wait.
    Retry(Duration),
    /// Failed for good: a dead letter.
    Dead,
    /// Not failed; called again after this wait, no attempt charged.
    Snooze(Duration),
    /// Not failed; called again once it has a signal that it waits for, or after this wait, no attempt charged.
    Park(Option<Duration>),
    /// Not failed; ready again with another payload, as a job that nothing was done of.
    Restart,
    /// Not begun or broken off by us; ready again at once, no attempt charged.
    Release,
    /// Cancelled by somebody; kept as history.
    Cancel,
    /// Not begun, and its time to begin is over; kept as history. No attempt, so no outcome leads to it.
    Expire,
}

/// Decides what is written for attempt number `attempt` (the first is 1) of a job that may be tried `max_attempts` times.
///
/// `dice` is drawn evenly from 0 to 1 by the caller.
pub fn verdict(outcome: Outcome, attempt: u32, max_attempts: u32, backoff: &Backoff, dice: f64) -> Verdict {
    let last = attempt >= max_attempts;
    match outcome {
        Outcome::Ok => Verdict::Complete,
        Outcome::Terminal => Verdict::Dead,
        Outcome::Snoozed(wait) => Verdict::Snooze(wait.min(LONGEST_WAIT)),
        Outcome::Parked(wait) => Verdict::Park(wait.map(|wait| wait.min(LONGEST_WAIT))),
        Outcome::Restarted => Verdict::Restart,
        Outcome::Interrupted => Verdict::Release,
        Outcome::Cancelled => Verdict::Cancel,
        Outcome::Failed | Outcome::Panicked | Outcome::TimedOut | Outcome::RetryIn(_) if last => Verdict::Dead,
        Outcome::RetryIn(wait) => Verdict::Retry(wait.min(LONGEST_WAIT)),
        Outcome::Failed | Outcome::Panicked | Outcome::TimedOut => Verdict::Retry(backoff.wait(attempt, dice)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn growths_differ_in_their_third_wait() {
        assert_eq!(Backoff::fixed(SECOND).wait(3, 0.5), SECOND);
        assert_eq!(Backoff::linear(SECOND).wait(3, 0.5), 3 * SECOND);
        assert_eq!(Backoff::exponential(SECOND).wait(3, 0.5), 4 * SECOND);
    }

    #[test]
    fn f24_a_millionth_attempt_waits_the_maximum() {
        let tick = Duration::from_nanos(3);
        for backoff in
            [Backoff::linear(3 * SECOND), Backoff::exponential(SECOND), Backoff::exponential(tick), Backoff::fixed(Duration::MAX)]
        {
            for attempt in [1_000_000, u32::MAX] {
                assert_eq!(backoff.wait(attempt, 0.5), LONGEST);
                assert_eq!(backoff.max(60 * SECOND).wait(attempt, 0.5), 60 * SECOND);
                assert_eq!(backoff.max(Duration::MAX).wait(attempt, 1.0), LONGEST);
            }
        }
        assert_eq!(Backoff::linear(SECOND).wait(1_000_000, 0.5), 1_000_000 * SECOND);
        assert_eq!(Backoff::exponential(tick).wait(41, 0.5), Duration::from_nanos(3 << 40), "doubled until it is the maximum");
        assert_eq!(Backoff::exponential(Duration::ZERO).wait(u32::MAX, 0.5), Duration::ZERO);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let backoff = Backoff::fixed(10 * SECOND).jitter(0.2);
        assert_eq!(backoff.wait(1, 0.0), 8 * SECOND);
        assert_eq!(backoff.wait(1, 1.0), 12 * SECOND);
        assert_eq!((backoff.wait(1, -7.0), backoff.wait(1, f64::INFINITY)), (8 * SECOND, 12 * SECOND));
        assert_eq!(backoff.jitter(7.0).wait(1, 1.0), 20 * SECOND);
    }

    #[test]
    fn what_is_no_number_moves_no_wait() {
        let backoff = Backoff::fixed(10 * SECOND);
        assert_eq!(backoff.jitter(0.2).wait(1, f64::NAN), 10 * SECOND);
        for dice in [0.0, 1.0, f64::NAN] {
            assert_eq!(backoff.jitter(f64::NAN).wait(1, dice), 10 * SECOND);
        }
    }

    #[test]
    fn the_last_attempt_is_dead_whatever_kind_of_failure() {
        for outcome in [Outcome::Failed, Outcome::Panicked, Outcome::TimedOut, Outcome::RetryIn(SECOND)] {
            assert_eq!(verdict(outcome, 3, 3, &Backoff::DEFAULT, 0.5), Verdict::Dead);
            assert!(matches!(verdict(outcome, 2, 3, &Backoff::DEFAULT, 0.5), Verdict::Retry(_)));
        }
    }

    #[test]
    fn snooze_and_release_charge_nothing_even_on_the_last_attempt() {
        assert_eq!(verdict(Outcome::Snoozed(SECOND), 3, 3, &Backoff::DEFAULT, 0.5), Verdict::Snooze(SECOND));
        assert_eq!(verdict(Outcome::Snoozed(45 * DAY), 3, 3, &Backoff::DEFAULT, 0.5), Verdict::Snooze(45 * DAY));
        assert_eq!(verdict(Outcome::Parked(Some(60 * DAY)), 3, 3, &Backoff::DEFAULT, 0.5), Verdict::Park(Some(60 * DAY)));
        assert_eq!(verdict(Outcome::RetryIn(60 * DAY), 2, 3, &Backoff::DEFAULT, 0.5), Verdict::Retry(60 * DAY));
        assert_eq!(verdict(Outcome::Interrupted, 3, 3, &Backoff::DEFAULT, 0.5), Verdict::Release);
    }
}
