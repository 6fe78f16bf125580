//! Until when a job is worth beginning, as its enqueue says it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{define::shown, error::Error};

/// 3,000 years, in seconds.
pub(super) const FARTHEST: u64 = 94_608_000_000;

/// Unless it has begun by then, a job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expires {
    Never,
    At(DateTime<Utc>),
    /// After it may run first.
    In(Duration),
}

/// Whether this is a time that our tables hold.
pub(super) fn is_in_range(time: DateTime<Utc>) -> bool {
    const LATEST: i64 = 253_402_300_799; // the last second of 9999
    (0..=LATEST).contains(&time.timestamp())
}

impl Expires {
    pub(super) fn check(self) -> Result<(), Error> {
        let out = |value, range| Err(Error::OutOfRange { what: "the time to expire at", value, range });
        match self {
            Self::At(time) if !is_in_range(time) => out(time.to_string(), "within the years 1970 to 9999"),
            Self::In(wait) if wait.as_micros() == 0 || wait.as_secs() > FARTHEST => {
                out(format!("{} after it may run", shown(wait)), "longer than zero, and at most 3,000 years")
            }
            Self::Never | Self::At(_) | Self::In(_) => Ok(()),
        }
    }

    /// When that is of a job that is due at this time, or now if it is due; as `queue.read_expiry`.
    pub(super) fn of(self, due: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, Error> {
        match (self, due) {
            (Self::Never, _) => Ok(None),
            (Self::At(time), Some(due)) if due >= time => Err(Error::OutOfRange {
                what: "the time to expire at",
                value: time.to_string(),
                range: "later than the time to run at; say an earlier one of these, or `expires_in`",
            }),
            (Self::At(time), _) => Ok(Some(time)),
            (Self::In(wait), due) => {
                let later = chrono::Duration::from_std(wait).ok().and_then(|wait| due.unwrap_or(now).checked_add_signed(wait));
                let out = || Error::OutOfRange {
                    what: "the time to expire at",
                    value: format!("{} after it may run", shown(wait)),
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
        let of = |expires: Expires, due| expires.of(due, now).ok();
        assert_eq!(of(Expires::In(SECOND), None), Some(Some(now + SECOND)));
        assert_eq!(of(Expires::In(SECOND), Some(now + SECOND)), Some(Some(now + 2 * SECOND)));
        assert_eq!(of(Expires::At(now - SECOND), None), Some(Some(now - SECOND)), "it is over as soon as somebody looks");
        assert_eq!(of(Expires::At(now + SECOND), Some(now + SECOND)), None);
        assert_eq!(of(Expires::Never, Some(now)), Some(None));
        assert_eq!(of(Expires::In(Duration::from_secs(FARTHEST * 3)), None), None);
    }

    #[test]
    fn times_that_no_table_holds_are_refused() {
        let year = |year: i64| DateTime::UNIX_EPOCH + chrono::Duration::days(year * 365);
        assert!(Expires::At(year(9000)).check().is_err() && Expires::At(year(-1)).check().is_err() && Expires::At(year(1)).check().is_ok());
        assert!(Expires::In(Duration::ZERO).check().is_err() && Expires::In(Duration::MAX).check().is_err());
        assert!(Expires::In(Duration::from_nanos(999)).check().is_err(), "the database counts in microseconds");
        assert!(Expires::In(SECOND).check().is_ok());
    }
}
