//! How many jobs may run at once, and how many may begin in a time. Pure: who counts them is the store.

use std::time::Duration;

use super::span::shown;

/// How many jobs of a type, of types that share a name, or of a queue may run at once, and how many may begin in a time: over all workers.
///
/// This is what code says; what an operator sets (`operate::set_limit`) is in force instead, until it is taken away. A job that several limits cover
/// begins once each of them has room. See `docs/LIMITS.md`.
///
/// ```
/// use queue_core::Limit;
/// use std::time::Duration;
///
/// let render = Limit::queue().concurrency(10);
/// let stripe = Limit::named("stripe").rate(30, Duration::from_secs(60)).burst(5);
/// assert_eq!((render.concurrency, stripe.burst), (Some(10), Some(5)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The name that types share; none for the type's or the queue's own.
    pub name: Option<&'static str>,
    /// How many run at once. None is any number.
    pub concurrency: Option<u32>,
    /// How many begin within a time, in whichever window of that length one looks. None is any number.
    pub rate: Option<(u32, Duration)>,
    /// How many begin close together: see [`Limit::burst`].
    pub burst: Option<u32>,
    /// Whether its figures are those of each key: see [`Limit::keyed`].
    pub keyed: bool,
}

impl Limit {
    /// The most jobs of a concurrency.
    pub const MOST: u32 = 1_000_000;

    /// The most starts of a rate.
    pub const MOST_STARTS: u32 = 100_000;

    /// The shortest and the longest period of a rate: 100 ms and 365 days.
    pub const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_hours(365 * 24));

    const NONE: Self = Self { name: None, concurrency: None, rate: None, burst: None, keyed: false };

    /// Of whatever name it is given elsewhere.
    pub const fn new() -> Self {
        Self::NONE
    }

    /// That of one job type, wherever its jobs are.
    pub const fn job_type() -> Self {
        Self::NONE
    }

    /// That of one queue, whatever is in it.
    pub const fn queue() -> Self {
        Self::NONE
    }

    /// One that types share by naming it.
    pub const fn named(name: &'static str) -> Self {
        Self { name: Some(name), ..Self::NONE }
    }

    /// `name = "stripe"`: shared by all types that name it, across queues; one of them gives its figures, or all give the same. Default: the type has
    /// a limit of its own.
    #[must_use]
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// `concurrency = 10`: so many run at once, 0 to 1,000,000. What waits for another try or was put off does not count; what a crashed worker held
    /// counts until it is recovered.
    #[must_use]
    pub const fn concurrency(mut self, most: u32) -> Self {
        self.concurrency = Some(most);
        self
    }

    /// `rate = "30/1m"`: no more than so many begin in any window of this length, each attempt counted. 1 to 100,000 starts; from 100 ms to 365 days.
    #[must_use]
    pub const fn rate(mut self, starts: u32, period: Duration) -> Self {
        self.rate = Some((starts, period));
        self
    }

    /// `burst = 5`: of a rate, so many at most begin close together: no more than 5 in any window of 5/30 of the rate's. Default: all of the rate may
    /// begin at once.
    #[must_use]
    pub const fn burst(mut self, starts: u32) -> Self {
        self.burst = Some(starts);
        self
    }

    /// `key = self.account`: the figures are those of each key, not of all jobs together. The key is the one by whose line the job takes its turn
    /// ([`Options::fair`](crate::Options::fair)); jobs without one have a key in common. What is said of one key goes first: `operate::set_limit_key`.
    #[must_use]
    pub const fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// What is wrong with it.
    pub fn fault(&self) -> Option<String> {
        self.out_of_range().map(|(what, value, range)| format!("{what} is {value}; it must be {range}"))
    }

    /// The figure that no limit has, its value, and what is accepted.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, String, &'static str)> {
        let rate = self
            .rate
            .filter(|(starts, period)| !(1..=Self::MOST_STARTS).contains(starts) || *period < Self::PERIODS.0 || *period > Self::PERIODS.1);
        let burst = self.burst.filter(|burst| self.rate.is_none_or(|(starts, _)| !(1..=starts).contains(burst)));
        if let Some(most) = self.concurrency.filter(|most| *most > Self::MOST) {
            Some(("the concurrency of the limit", most.to_string(), "0 to 1000000"))
        } else if let Some((starts, period)) = rate {
            let value = format!("{starts} in {}", shown(period));
            Some(("the rate of the limit", value, "1 to 100000 starts within 100 ms to 365 days"))
        } else {
            burst.map(|burst| ("the burst of the limit", burst.to_string(), "1 to the starts of its rate, and only beside a rate"))
        }
    }

    /// Whether it says how many.
    pub fn says_how_many(&self) -> bool {
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
