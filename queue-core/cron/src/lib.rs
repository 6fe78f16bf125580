//! Run times of a cron expression in a time zone. The modules `expression` and `field` match the expression against civil time. Callers
//! pass the current time. This module handles clock changes as Debian's cron does:
//!
//! - An expression is an interval expression if its minute field or its hour field begins with `*`. An interval expression runs at every
//!   moment whose civil time matches. Skipped times therefore never run, and repeated times run twice.
//! - Any other expression lists times of day. A skipped time runs at the end of the gap, and a repeated time runs at its first occurrence.

mod expression;
mod field;

use std::fmt;

use chrono::{DateTime, Duration, MappedLocalTime, Months, NaiveDateTime, TimeZone as _, Utc};
use chrono_tz::Tz;

use self::expression::Expression;

/// Cron expression in a time zone. Computes the expression's run times.
///
/// ```
/// use chrono::{TimeZone as _, Utc};
/// use queue_cron::Cron;
///
/// let cron = Cron::new("30 4 * * MON-FRI", "Europe/Berlin")?;
/// let friday = Utc.with_ymd_and_hms(2026, 11, 27, 12, 0, 0).unwrap();
/// let monday = Utc.with_ymd_and_hms(2026, 11, 30, 3, 30, 0).unwrap();
/// assert_eq!(cron.next(friday), Some(monday));
/// assert!(Cron::new("30 24 * * *", "UTC").unwrap_err().contains("out of range"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    text: String,
    expression: Expression,
    zone: Tz,
}

/// Maximum period of the search for the next run time. The rarest date, 29 February on a given weekday, recurs within 40 years, even
/// across 2100, which is not a leap year.
const HORIZON: Months = Months::new(50 * 12);

/// Maximum length of a cron expression in bytes.
const MAX_BYTES: usize = 256;

impl Cron {
    /// Parses an expression and the name of a time zone. An expression has five fields, or six fields with the seconds first, or is a
    /// nickname such as `@daily`.
    ///
    /// # Errors
    /// Returns a description of the fault in the expression or the time zone, with a proposed fix.
    pub fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let Ok(zone) = zone.parse() else {
            return Err(format!("unknown time zone `{}`; write a name like `Europe/Berlin` or `UTC`", escape(zone)));
        };
        let text = expression.trim().to_owned();
        let read = if text.len() > MAX_BYTES {
            Err(format!("it has more than {MAX_BYTES} bytes; write a shorter one"))
        } else {
            Expression::new(&text).and_then(|expression| {
                let cron = Self { text: text.clone(), expression, zone };
                // A date such as 30 February is parsed without an error but never occurs.
                let comes = cron.next(DateTime::UNIX_EPOCH).is_some();
                if comes { Ok(cron) } else { Err("there is no such date; write one that a calendar has".to_owned()) }
            })
        };
        read.map_err(|why| format!("the cron expression `{}` cannot be read: {why}", escape(&text)))
    }

    /// Returns the first matching time after `after`. Returns `None` if no time within 50 years matches.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = after.with_timezone(&self.zone).naive_local();
        let horizon = local.checked_add_months(HORIZON)?;
        // In a repeated hour, earlier civil times may occur again, so the search starts earlier by the length of the clock change.
        let mut civil = match self.zone.from_local_datetime(&local) {
            MappedLocalTime::Ambiguous(one, other) => local - (one - other).abs() - Duration::seconds(1),
            _ => local,
        };
        let mut next: Option<DateTime<Utc>> = None;
        while let Some(found) = self.expression.next(civil, horizon) {
            civil = found;
            let (first, second) = self.occurrences(civil);
            for moment in [first, second].into_iter().flatten().filter(|moment| *moment > after) {
                next = Some(next.map_or(moment, |known| known.min(moment)));
            }
            match first {
                // Every later civil time first occurs at `first` or later, and `first` is not before `next`, so the search ends.
                Some(first) if next.is_some_and(|next| first >= next) => break,
                Some(_) => {}
                // An interval expression does not run at the skipped civil times of a gap, so the search continues at the end of the gap.
                None => civil = self.end_of_gap(civil).with_timezone(&self.zone).naive_local() - Duration::seconds(1),
            }
        }
        next
    }

    /// Returns the moments at which the expression runs for `civil`, a matching civil time. A clock change may repeat or skip a civil time,
    /// so there are between zero and two moments.
    fn occurrences(&self, civil: NaiveDateTime) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
        match self.zone.from_local_datetime(&civil) {
            MappedLocalTime::Single(moment) => (Some(moment.to_utc()), None),
            MappedLocalTime::Ambiguous(one, other) => {
                let second = self.expression.runs_at_intervals.then(|| one.max(other).to_utc());
                (Some(one.min(other).to_utc()), second)
            }
            MappedLocalTime::None if self.expression.runs_at_intervals => (None, None),
            MappedLocalTime::None => (Some(self.end_of_gap(civil)), None),
        }
    }

    /// Returns the first moment after the clock change that skips the civil time `civil`.
    fn end_of_gap(&self, civil: NaiveDateTime) -> DateTime<Utc> {
        // UTC offsets are shorter than a day, so the gap lies within 50 hours of `civil`.
        let (mut before, mut beyond) =
            ((civil - Duration::hours(50)).and_utc().timestamp(), (civil + Duration::hours(50)).and_utc().timestamp());
        while beyond - before > 1 {
            let middle = before + (beyond - before) / 2;
            let is_beyond =
                DateTime::from_timestamp(middle, 0).is_some_and(|middle| middle.with_timezone(&self.zone).naive_local() > civil);
            if is_beyond { beyond = middle } else { before = middle }
        }
        DateTime::from_timestamp(beyond, 0).unwrap_or(DateTime::UNIX_EPOCH)
    }
}

fn escape(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({} {})", self.text, self.zone)
    }
}

#[cfg(test)]
mod tests;
