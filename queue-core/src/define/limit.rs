//! Concurrency limits and rate limits. This module only defines limits; the store counts running jobs and job starts.

use std::time::Duration;

use super::duration::format_duration;

/// Limit on the concurrency and the start rate of a job type, a queue, or all types that share a named limit. The limit applies to all
/// workers together.
///
/// A limit set by an operator ([`Queue::set_limit`](crate::Queue::set_limit)) replaces the declared limit until the operator's limit is
/// removed. A job under several limits starts once every limit allows it. See `docs/LIMITS.md`.
///
/// ```
/// use queue_core::options::Limit;
/// use std::time::Duration;
///
/// let render = Limit::queue().concurrency(10);
/// let stripe = Limit::named("stripe").rate(30, Duration::from_secs(60)).burst(5);
/// assert_eq!((render.concurrency, stripe.burst), (Some(10), Some(5)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// Name of a limit that job types share; `None` for the limit of a single job type or a queue.
    pub name: Option<&'static str>,
    /// Maximum number of running jobs; `None` for no limit.
    pub concurrency: Option<u32>,
    /// Maximum number of starts in any window of the given duration; `None` for no limit.
    pub rate: Option<(u32, Duration)>,
    /// Maximum number of starts in quick succession; `None` if all starts of the rate may happen at once. See [`Limit::burst`].
    pub burst: Option<u32>,
    /// Whether the limit applies to each key separately; see [`Limit::keyed`].
    pub keyed: bool,
}

impl Limit {
    /// Maximum accepted value of `concurrency`.
    pub const MOST: u32 = 1_000_000;

    /// Maximum accepted number of starts per period of a rate.
    pub const MOST_STARTS: u32 = 100_000;

    /// Minimum and maximum period of a rate: 100 ms and 365 days.
    pub const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_hours(365 * 24));

    const NONE: Self = Self { name: None, concurrency: None, rate: None, burst: None, keyed: false };

    /// Creates a limit without a name, a concurrency or a rate. Used, for example, with [`Queue::set_limit`](crate::Queue::set_limit),
    /// which takes the name as an argument.
    pub const fn new() -> Self {
        Self::NONE
    }

    /// Creates a limit for one job type, in all queues.
    pub const fn job_type() -> Self {
        Self::NONE
    }

    /// Creates a limit for one queue, for all job types.
    pub const fn queue() -> Self {
        Self::NONE
    }

    /// Creates a limit that is shared by all types with a limit of this name.
    pub const fn named(name: &'static str) -> Self {
        Self { name: Some(name), ..Self::NONE }
    }

    /// Sets the name of the limit, as in `name = "stripe"`. All types that use the name share the limit, across queues. Types that set
    /// values must set the same values; the other types can omit them. By default, each type has a separate limit.
    #[must_use]
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the maximum number of running jobs, as in `concurrency = 10`, from 0 to 1,000,000. Jobs that are snoozed or waiting for a
    /// retry do not count. A crashed worker's jobs count until they are recovered.
    #[must_use]
    pub const fn concurrency(mut self, most: u32) -> Self {
        self.concurrency = Some(most);
        self
    }

    /// Sets the maximum number of starts in any window of length `period`, as in `rate = "30/1m"`. Each attempt counts as a start. Accepts
    /// 1 to 100,000 starts and a period of 100 ms to 365 days.
    #[must_use]
    pub const fn rate(mut self, starts: u32, period: Duration) -> Self {
        self.rate = Some((starts, period));
        self
    }

    /// Sets the maximum number of starts in quick succession under a rate, as in `burst = 5`. With `rate = "30/1m"` and `burst = 5`, at
    /// most 5 jobs start in any window of 10 seconds (5/30 of a minute). By default, all starts of a rate may happen at once.
    #[must_use]
    pub const fn burst(mut self, starts: u32) -> Self {
        self.burst = Some(starts);
        self
    }

    /// Applies the limit to each key separately instead of to all jobs together, as in `key = self.account`. The key is the job's fairness
    /// key ([`Options::fair`](crate::options::Options::fair)). Jobs without a key share one limit. An operator can set a different limit
    /// for a single key with [`Queue::set_limit_key`](crate::Queue::set_limit_key).
    #[must_use]
    pub const fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// Returns a description of an invalid setting, or `None` if the limit is valid.
    pub fn fault(&self) -> Option<String> {
        self.out_of_range().map(|(what, value, range)| format!("{what} is {value}; it must be {range}"))
    }

    /// Returns the first value that is out of range, as a tuple of its name, the value and the accepted range.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, String, &'static str)> {
        let rate = self
            .rate
            .filter(|(starts, period)| !(1..=Self::MOST_STARTS).contains(starts) || *period < Self::PERIODS.0 || *period > Self::PERIODS.1);
        let burst = self.burst.filter(|burst| self.rate.is_none_or(|(starts, _)| !(1..=starts).contains(burst)));
        if let Some(most) = self.concurrency.filter(|most| *most > Self::MOST) {
            Some(("the concurrency of the limit", most.to_string(), "0 to 1000000"))
        } else if let Some((starts, period)) = rate {
            let value = format!("{starts} in {}", format_duration(period));
            Some(("the rate of the limit", value, "1 to 100000 starts within 100 ms to 365 days"))
        } else {
            burst.map(|burst| ("the burst of the limit", burst.to_string(), "1 to the starts of its rate, and requires a rate"))
        }
    }

    /// Returns whether the limit has a concurrency or a rate.
    pub fn has_values(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_in_range() {
        let rate = |starts, ms| Limit::job_type().rate(starts, Duration::from_millis(ms));
        for right in [Limit::queue(), Limit::queue().concurrency(0), rate(1, 100), rate(100_000, 1000).burst(100_000)] {
            assert_eq!(right.fault(), None, "{right:?}");
        }
        for wrong in [Limit::queue().concurrency(1_000_001), rate(0, 100), rate(1, 99), rate(5, 100).burst(6), Limit::queue().burst(1)] {
            assert!(wrong.fault().is_some(), "{wrong:?}");
        }
    }
}
