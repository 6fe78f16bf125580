//! The moments that a cron expression means in a time zone. The expression is matched against civil time; what a change of the clocks makes of
//! that is decided here, by the rule of Debian's cron. Pure: the time comes from whoever asks.
//!
//! - An expression whose minutes or hours begin with `*` is one of intervals: it runs at every moment whose civil time matches. A time that is
//!   passed over is none, and of one that comes twice both are.
//! - Any other names times of a day: one that is passed over runs at the end of the gap, one that comes twice runs at the first.

use std::{fmt, str::FromStr as _};

use chrono::{DateTime, Duration, MappedLocalTime, NaiveDateTime, TimeZone as _, Utc};
use chrono_tz::Tz;

/// A cron expression in a time zone.
#[derive(Clone)]
pub struct Cron {
    expression: croner::Cron,
    is_of_intervals: bool,
    zone: Tz,
}

/// More than the civil times of a day, so that an expression whose times all fall into gaps ends the search.
const MOST_LOOKS: usize = 100_000;

impl Cron {
    /// Reads an expression (five fields, or six with seconds first, or one such as `@daily`) and the name of a zone.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn new(expression: &str, zone: &str) -> Result<Self, String> {
        let Ok(zone) = zone.parse() else {
            return Err(format!("there is no time zone `{}`; write a name like `Europe/Berlin` or `UTC`", shown(zone)));
        };
        let wrong = |why: &dyn fmt::Display| {
            let why = why.to_string();
            let why = why.trim_end_matches('.');
            format!("the cron expression `{}` cannot be read ({why}); write one like `30 4 * * MON-FRI`", shown(expression))
        };
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if expression.len() > LONGEST
            || !matches!(fields.as_slice(), [_, _, _, _, _] | [_, _, _, _, _, _]) && !expression.trim().starts_with('@')
        {
            return Err(wrong(&"it has five fields, or six with seconds first"));
        }
        let read = croner::Cron::from_str(expression).map_err(|error| wrong(&error))?;
        let clock = match fields.as_slice() {
            [hourly] => {
                if hourly.eq_ignore_ascii_case("@hourly") {
                    ["*", "*"]
                } else {
                    ["0", "0"]
                }
            }
            [_, minute, hour, _, _, _] | [minute, hour, ..] => [*minute, *hour],
            [] => ["0", "0"],
        };
        let is_of_intervals = clock.iter().any(|field| field.starts_with(['*', '?']));
        let cron = Self { expression: read, is_of_intervals, zone };
        // A date such as 30 February can be read, and never comes.
        match cron.next(DateTime::UNIX_EPOCH) {
            Some(_) => Ok(cron),
            None => Err(wrong(&"there is no such date")),
        }
    }

    /// The first moment after this one.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let local = after.with_timezone(&self.zone).naive_local();
        // In the first pass of a time that comes twice, what was before it in civil time comes again.
        let mut civil = match self.zone.from_local_datetime(&local) {
            MappedLocalTime::Ambiguous(one, other) => local - (one - other).abs() - Duration::seconds(1),
            _ => local,
        };
        let mut next: Option<DateTime<Utc>> = None;
        for _ in 0..MOST_LOOKS {
            civil = self.expression.find_next_occurrence(&civil, false).ok()?;
            let (first, second) = self.moments(civil);
            for moment in [first, second].into_iter().flatten().filter(|moment| *moment > after) {
                next = Some(next.map_or(moment, |known| known.min(moment)));
            }
            // The first moments of later civil times are not earlier.
            if next.is_some_and(|next| first.is_some_and(|first| first >= next)) {
                break;
            }
        }
        next
    }

    /// When it is that time by the clock on the wall.
    fn moments(&self, civil: NaiveDateTime) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
        match self.zone.from_local_datetime(&civil) {
            MappedLocalTime::Single(moment) => (Some(moment.to_utc()), None),
            MappedLocalTime::Ambiguous(one, other) => {
                let second = self.is_of_intervals.then(|| one.max(other).to_utc());
                (Some(one.min(other).to_utc()), second)
            }
            MappedLocalTime::None if self.is_of_intervals => (None, None),
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

/// Of an expression.
const LONGEST: usize = 256;

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({} {})", self.expression.as_str(), self.zone)
    }
}

#[cfg(test)]
mod tests;
