//! Decision about a job after an attempt. This module reads no clock, accesses no database and draws no random numbers.
//!
//! Only [`verdict`] decides between a retry and a dead letter.

use std::time::Duration;

/// Policy for the delay before the next attempt.
///
/// The delay after attempt `n` is `base` for a fixed backoff, `base * n` for a linear backoff, and `base * 2^(n-1)` for an exponential
/// backoff, capped at `max`. The jitter then lengthens or shortens the capped delay at random, by up to the fraction `jitter` of the delay.
///
/// ```
/// use queue_core::{JobType, job, options::Backoff};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[job(send_only, backoff = exponential("1s", max = "10m"))]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// let backoff: Backoff = SendEmail::OPTIONS.backoff;
/// assert_eq!(backoff.wait(3, 0.5), Duration::from_secs(4)); // after the third attempt
/// ```
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

/// Maximum delay that a handler may request: 100 years.
pub(crate) const MAX_WAIT: Duration = Duration::from_hours(100 * 366 * 24);

/// Upper limit for the delay of a backoff before jitter is applied: 30 days.
const MAX_BACKOFF: Duration = Duration::from_hours(30 * 24);

impl Backoff {
    /// Default backoff: exponential from 5 s to at most 6 h, with a jitter of 0.1.
    pub const DEFAULT: Self = Self::exponential(Duration::from_secs(5)).max(Duration::from_hours(6)).jitter(0.1);

    /// Creates a backoff with a constant delay.
    pub const fn fixed(base: Duration) -> Self {
        Self { growth: Growth::Fixed, base, max: MAX_BACKOFF, jitter: 0.0 }
    }

    /// Creates a backoff whose delay grows linearly: `base`, `2 * base`, `3 * base` and so on.
    pub const fn linear(base: Duration) -> Self {
        Self { growth: Growth::Linear, base, max: MAX_BACKOFF, jitter: 0.0 }
    }

    /// Creates a backoff whose delay starts at `base` and doubles after each attempt.
    pub const fn exponential(base: Duration) -> Self {
        Self { growth: Growth::Exponential, base, max: MAX_BACKOFF, jitter: 0.0 }
    }

    /// Sets the maximum delay before jitter is applied. The default and the upper limit are 30 days.
    #[must_use]
    pub const fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// Sets the jitter: the maximum fraction, from 0 to 1, by which a delay is lengthened or shortened at random. Jitter keeps jobs that
    /// failed together from being retried together. Default: 0.
    #[must_use]
    pub const fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns the delay after attempt number `attempt`, counted from 1. `dice` is a random number from 0 to 1, drawn by the caller from
    /// a uniform distribution.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use queue_core::options::Backoff;
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
        let most = self.max.min(MAX_BACKOFF);
        let wait = if grown < most.as_nanos() { Duration::from_nanos(grown as u64) } else { most };
        // `clamp` returns NaN unchanged, and multiplying a `Duration` by NaN panics, so NaN is replaced first.
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

/// Outcome of an attempt. [`verdict`] derives the decision about the job from the outcome.
///
/// ```
/// use queue_core::options::{Backoff, Outcome, Verdict, verdict};
///
/// let decide = |outcome| verdict(outcome, 3, 3, &Backoff::DEFAULT, 0.5); // the last of three attempts
/// assert_eq!(decide(Outcome::Failed), Verdict::Dead);
/// assert_eq!(decide(Outcome::Interrupted), Verdict::Release);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler returned `Ok`.
    Ok,
    /// The handler returned an error that a retry may fix.
    Failed,
    /// The handler returned an error and set the retry delay.
    RetryIn(Duration),
    /// The handler returned an error that no retry can fix, or the payload cannot be decoded.
    Terminal,
    /// The handler panicked.
    Panicked,
    /// The attempt exceeded the type's timeout.
    TimedOut,
    /// The handler did not fail, but requested another run after the given delay.
    Snoozed(Duration),
    /// The handler of a durable job is waiting for a signal, for at most the given duration. Without a duration, it waits indefinitely.
    Parked(Option<Duration>),
    /// The handler of a durable job restarted the job with another payload.
    Restarted,
    /// The attempt was interrupted by a shutdown or did not start.
    Interrupted,
    /// The job was cancelled.
    Cancelled,
}

impl Outcome {
    /// Returns the name of the outcome in tracing spans.
    pub(crate) fn name(self) -> &'static str {
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

/// Decision about a job after an attempt.
///
/// ```
/// use queue_core::options::{Backoff, Outcome, Verdict, verdict};
/// use std::time::Duration;
///
/// let backoff = Backoff::fixed(Duration::from_secs(10));
/// match verdict(Outcome::TimedOut, 1, 3, &backoff, 0.5) {
///     Verdict::Retry(delay) => assert_eq!(delay, Duration::from_secs(10)),
///     other => unreachable!("{other:?}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The job is completed.
    Complete,
    /// The attempt failed. The job is retried after the given delay.
    Retry(Duration),
    /// The attempt failed, and the failure is terminal or no attempts remain. The job becomes a dead letter.
    Dead,
    /// The attempt did not fail. The job runs again after the given delay, and no attempt is charged.
    Snooze(Duration),
    /// The attempt did not fail. The job runs again after one of the signals it awaits, or after the given delay if there is one. No
    /// attempt is charged.
    Park(Option<Duration>),
    /// The attempt did not fail. The job is ready again with another payload, and its progress is discarded.
    Restart,
    /// The attempt did not start, or the worker interrupted it. The job is ready again immediately, and no attempt is charged.
    Release,
    /// The job is cancelled and kept in the history.
    Cancel,
    /// The job did not start before its expiry time and is kept in the history. No [`Outcome`] leads to this verdict, because an outcome
    /// requires an attempt.
    Expire,
}

/// Returns the verdict on attempt number `attempt` (counted from 1) of a job with at most `max_attempts` attempts.
///
/// `dice` determines the jitter of the retry delay. The caller draws it from a uniform distribution between 0 and 1.
pub fn verdict(outcome: Outcome, attempt: u32, max_attempts: u32, backoff: &Backoff, dice: f64) -> Verdict {
    let last = attempt >= max_attempts;
    match outcome {
        Outcome::Ok => Verdict::Complete,
        Outcome::Terminal => Verdict::Dead,
        Outcome::Snoozed(wait) => Verdict::Snooze(wait.min(MAX_WAIT)),
        Outcome::Parked(wait) => Verdict::Park(wait.map(|wait| wait.min(MAX_WAIT))),
        Outcome::Restarted => Verdict::Restart,
        Outcome::Interrupted => Verdict::Release,
        Outcome::Cancelled => Verdict::Cancel,
        Outcome::Failed | Outcome::Panicked | Outcome::TimedOut | Outcome::RetryIn(_) if last => Verdict::Dead,
        Outcome::RetryIn(wait) => Verdict::Retry(wait.min(MAX_WAIT)),
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
                assert_eq!(backoff.wait(attempt, 0.5), MAX_BACKOFF);
                assert_eq!(backoff.max(60 * SECOND).wait(attempt, 0.5), 60 * SECOND);
                assert_eq!(backoff.max(Duration::MAX).wait(attempt, 1.0), MAX_BACKOFF);
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
    fn nan_does_not_change_a_delay() {
        let backoff = Backoff::fixed(10 * SECOND);
        assert_eq!(backoff.jitter(0.2).wait(1, f64::NAN), 10 * SECOND);
        for dice in [0.0, 1.0, f64::NAN] {
            assert_eq!(backoff.jitter(f64::NAN).wait(1, dice), 10 * SECOND);
        }
    }

    #[test]
    fn any_failure_of_the_last_attempt_is_a_dead_letter() {
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
