//! Earliest start time of a job.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::expiry::{MAX_DELAY_SECS, is_in_range};
use crate::{define::format_duration, error::Error};

/// Earliest start time of a job, as set by the enqueue.
#[derive(Clone, Copy, Debug)]
pub(super) enum StartTime {
    Now,
    After(Duration),
    At(DateTime<Utc>),
}

impl StartTime {
    pub(super) fn check(self) -> Result<(), Error> {
        let out = |value: String| Error::OutOfRange { what: "the time to run at", value, range: "within the years 1970 to 9999" };
        match self {
            Self::At(time) if !is_in_range(time) => Err(out(time.to_string())),
            Self::After(wait) if wait.as_secs() > MAX_DELAY_SECS => Err(out(format!("{} from now", format_duration(wait)))),
            Self::Now | Self::At(_) | Self::After(_) => Ok(()),
        }
    }

    /// Returns the start time if the enqueue set an absolute time.
    pub(super) fn at(self) -> Option<DateTime<Utc>> {
        if let Self::At(time) = self { Some(time) } else { None }
    }

    /// Returns the delay in milliseconds if the enqueue set a delay.
    pub(super) fn after_ms(self) -> Option<f64> {
        if let Self::After(wait) = self { Some(wait.as_secs_f64() * 1000.0) } else { None }
    }

    /// Returns the due time, or `None` if the job is already due. `now` is the current time of the database clock.
    pub(super) fn due(self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Now => None,
            Self::At(time) => Some(time),
            Self::After(wait) => now.checked_add_signed(chrono::Duration::from_std(wait).ok()?),
        }
        .filter(|time| *time > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_from_the_databases_clock_and_a_time_that_has_passed_is_now() {
        let now = DateTime::UNIX_EPOCH + chrono::Duration::days(20_000);
        let second = Duration::from_secs(1);
        assert_eq!(StartTime::Now.due(now), None);
        assert_eq!(StartTime::At(now - second).due(now), None);
        assert_eq!(StartTime::After(Duration::ZERO).due(now), None);
        assert_eq!(StartTime::At(now + second).due(now), Some(now + second));
        assert_eq!(StartTime::After(second).due(now), Some(now + second));
        assert!(StartTime::After(Duration::from_hours(26_280_000)).due(now).is_some());
    }
}
