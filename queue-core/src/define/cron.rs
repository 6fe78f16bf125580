//! The moments that a cron expression means in a time zone. The expression is matched against civil time (`expression`, `field`); what a change of
//! the clocks makes of that is decided here, by the rule of Debian's cron. Pure: the time comes from whoever asks.
//!
//! - An expression whose minutes or hours begin with `*` is one of intervals: it runs at every moment whose civil time matches. A time that is
//!   passed over is none, and of one that comes twice both are.
//! - Any other names times of a day: one that is passed over runs at the end of the gap, one that comes twice runs at the first.

mod expression;
mod field;

use std::fmt;

use chrono::{DateTime, Duration, MappedLocalTime, Months, NaiveDateTime, TimeZone as _, Utc};
use chrono_tz::Tz;

use self::expression::Expression;

/// A cron expression in a time zone.
#[derive(Clone)]
pub struct Cron {
    text: String,
    expression: Expression,
    zone: Tz,
}

/// Limit of the search for the next moment. Every date that exists comes within 40 years: 29 February on one day of the week, around 2100.
const HORIZON: Months = Months::new(50 * 12);

/// Longest expression, in bytes.
const LONGEST: usize = 256;

impl Cron {
    /// Reads an expression (five fields, or six with seconds first, or one such as `@daily`) and the name of a zone.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let Ok(zone) = zone.parse() else {
            return Err(format!("there is no time zone `{}`; write a name like `Europe/Berlin` or `UTC`", shown(zone)));
        };
        let text = expression.trim().to_owned();
        let read = if text.len() > LONGEST {
            Err(format!("it has more than {LONGEST} bytes; write a shorter one"))
        } else {
            Expression::new(&text).and_then(|expression| {
                let cron = Self { text: text.clone(), expression, zone };
                // A date such as 30 February can be read, and never comes.
                let comes = cron.next(DateTime::UNIX_EPOCH).is_some();
                if comes { Ok(cron) } else { Err("there is no such date; write one that a calendar has".to_owned()) }
            })
        };
        read.map_err(|why| format!("the cron expression `{}` cannot be read: {why}", shown(&text)))
    }

    /// The first moment after this one, within 50 years.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = after.with_timezone(&self.zone).naive_local();
        let horizon = local.checked_add_months(HORIZON)?;
        // In the first pass of a time that comes twice, what was before it in civil time comes again.
        let mut civil = match self.zone.from_local_datetime(&local) {
            MappedLocalTime::Ambiguous(one, other) => local - (one - other).abs() - Duration::seconds(1),
            _ => local,
        };
        let mut next: Option<DateTime<Utc>> = None;
        while let Some(found) = self.expression.next(civil, horizon) {
            civil = found;
            let (first, second) = self.moments(civil);
            for moment in [first, second].into_iter().flatten().filter(|moment| *moment > after) {
                next = Some(next.map_or(moment, |known| known.min(moment)));
            }
            match first {
                // The first moments of later civil times are not earlier.
                Some(first) if next.is_some_and(|next| first >= next) => break,
                Some(_) => {}
                // The other times of the gap have no moment either.
                None => civil = self.end_of_gap(civil).with_timezone(&self.zone).naive_local() - Duration::seconds(1),
            }
        }
        next
    }

    /// When it is that time by the clock on the wall.
    fn moments(&self, civil: NaiveDateTime) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
        match self.zone.from_local_datetime(&civil) {
            MappedLocalTime::Single(moment) => (Some(moment.to_utc()), None),
            MappedLocalTime::Ambiguous(one, other) => {
                let second = self.expression.is_of_intervals.then(|| one.max(other).to_utc());
                (Some(one.min(other).to_utc()), second)
            }
            MappedLocalTime::None if self.expression.is_of_intervals => (None, None),
            MappedLocalTime::None => (Some(self.end_of_gap(civil)), None),
        }
    }

    /// The first moment whose civil time is beyond one that was passed over.
    fn end_of_gap(&self, civil: NaiveDateTime) -> DateTime<Utc> {
        // No offset, and no gap, is longer than a day.
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

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({} {})", self.text, self.zone)
    }
}

#[cfg(test)]
mod tests;
