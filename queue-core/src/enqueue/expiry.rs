//! Expiry of a job: the time by which the job must start.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{define::format_duration, error::Error};

/// Maximum delay until a job starts or expires, in seconds: 3,000 years.
pub(super) const MAX_DELAY_SECS: u64 = 94_608_000_000;

/// Expiry of a job: none, an absolute time, or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    Never,
    At(DateTime<Utc>),
    /// Duration from the job's earliest start time to its expiry.
    In(Duration),
}

/// Returns whether `time` is within the accepted range, the years 1970 to 9999.
pub(super) fn is_in_range(time: DateTime<Utc>) -> bool {
    const LATEST: i64 = 253_402_300_799; // the last second of 9999
    (0..=LATEST).contains(&time.timestamp())
}

impl Expiry {
    pub(super) fn check(self) -> Result<(), Error> {
        let out = |value, range| Err(Error::OutOfRange { what: "the time to expire at", value, range });
        match self {
            Self::At(time) if !is_in_range(time) => out(time.to_string(), "within the years 1970 to 9999"),
            Self::In(wait) if wait.as_micros() == 0 || wait.as_secs() > MAX_DELAY_SECS => {
                out(format!("{} after it may run", format_duration(wait)), "longer than zero, and at most 3,000 years")
            }
            Self::Never | Self::At(_) | Self::In(_) => Ok(()),
        }
    }

    /// Returns the expiry time of a job that is due at `due`, or at `now` if `due` is `None`. The SQL function `queue.read_expiry`
    /// computes the same time.
    pub(super) fn resolve(self, due: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Error> {
        match (self, due) {
            (Self::Never, _) => Ok(None),
            (Self::At(time), Some(due)) if due >= time => Err(Error::OutOfRange {
                what: "the time to expire at",
                value: time.to_string(),
                range: "later than the time to run at; change one of them, or use `expires_in`",
            }),
            (Self::At(time), _) => Ok(Some(time)),
            (Self::In(wait), due) => {
                let later = chrono::Duration::from_std(wait).ok().and_then(|wait| due.unwrap_or(now).checked_add_signed(wait));
                let out = || Error::OutOfRange {
                    what: "the time to expire at",
                    value: format!("{} after it may run", format_duration(wait)),
                    range: "before the year 10000",
                };
                later.filter(|time| is_in_range(*time)).map(Some).ok_or_else(out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_time_counts_from_when_a_job_may_run_and_none_expires_before() {
        let now = DateTime::UNIX_EPOCH + chrono::Duration::days(20_000);
        let of = |expires: Expiry, due| expires.resolve(due, now).ok();
        assert_eq!(of(Expiry::In(SECOND), None), Some(Some(now + SECOND)));
        assert_eq!(of(Expiry::In(SECOND), Some(now + SECOND)), Some(Some(now + 2 * SECOND)));
        assert_eq!(of(Expiry::At(now - SECOND), None), Some(Some(now - SECOND)), "it expires as soon as a worker finds it");
        assert_eq!(of(Expiry::At(now + SECOND), Some(now + SECOND)), None);
        assert_eq!(of(Expiry::Never, Some(now)), Some(None));
        assert_eq!(of(Expiry::In(Duration::from_secs(MAX_DELAY_SECS * 3)), None), None);
    }

    #[test]
    fn times_that_no_table_holds_are_refused() {
        let year = |year: i64| DateTime::UNIX_EPOCH + chrono::Duration::days(year * 365);
        assert!(Expiry::At(year(9000)).check().is_err() && Expiry::At(year(-1)).check().is_err() && Expiry::At(year(1)).check().is_ok());
        assert!(Expiry::In(Duration::ZERO).check().is_err() && Expiry::In(Duration::MAX).check().is_err());
        assert!(Expiry::In(Duration::from_nanos(999)).check().is_err(), "the database counts in microseconds");
        assert!(Expiry::In(SECOND).check().is_ok());
    }
}
