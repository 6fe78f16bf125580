//! Parser and matcher for cron expressions in civil time, without a time zone.

use chrono::{Datelike as _, Days, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _, Weekday};

use super::field::{DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, parse_number};

/// Parsed cron expression. The values of each cron field are stored as a bit set.
#[derive(Clone)]
pub(super) struct Expression {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: MonthDays,
    weekdays: Weekdays,
    /// Whether a date must match both the day of the month and the day of the week. If false, one match is enough.
    needs_both: bool,
    /// Whether the minute field or the hour field begins with `*`.
    pub(super) runs_at_intervals: bool,
}

#[derive(Clone, Default)]
struct MonthDays {
    plain: u64,
    /// Days in entries such as `15W`. Such an entry matches the nearest weekday (Monday to Friday) that is in the same month as the day.
    nearest: u64,
    /// Whether the field contains `L`, the last day of the month.
    last: bool,
    /// Whether the field contains `LW`, the last weekday (Monday to Friday) of the month.
    last_weekday: bool,
}

#[derive(Clone, Default)]
struct Weekdays {
    /// Matching weekdays for each of the five occurrences in a month: `FRI#2` sets only the second occurrence. An entry without `#` sets
    /// all five occurrences.
    nth: [u64; 5],
    /// Weekdays whose last occurrence in the month matches, such as `FRIL`.
    last: u64,
}

impl Expression {
    /// Parses an expression. The text must have no leading or trailing spaces.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = match text.strip_prefix('@') {
            Some(nickname) => expand_nickname(nickname)?,
            None => text,
        }
        .split_whitespace()
        .collect();
        let (second, [minute, hour, day, month, weekday]) = match fields.as_slice() {
            [second, rest @ ..] if let Ok(rest) = <[&str; 5]>::try_from(rest) => (*second, rest),
            all if let Ok(all) = <[&str; 5]>::try_from(all) => ("0", all),
            all => {
                return Err(format!("it has {} fields; write five fields, or six with seconds first, as in `30 4 * * MON-FRI`", all.len()));
            }
        };
        // As in Debian's cron, a day field that begins with `*` (such as `*/2`) counts as `*`. A date must then match both day fields.
        let any_day = [day, weekday].iter().any(|field| field.starts_with(['*', '?']));
        let (both, weekday) = weekday.strip_prefix('+').map_or((false, weekday), |weekday| (true, weekday));
        Ok(Self {
            seconds: SECOND.parse_list(second)?,
            minutes: MINUTE.parse_list(minute)?,
            hours: HOUR.parse_list(hour)?,
            months: MONTH.parse_list(month)?,
            days: MonthDays::new(&day.replace('?', "*"))?,
            weekdays: Weekdays::new(&weekday.replace('?', "*"))?,
            needs_both: any_day || both,
            runs_at_intervals: [minute, hour].iter().any(|field| field.starts_with('*')),
        })
    }

    /// Returns the first matching civil time after `after`. Returns `None` if no time up to the end of the day of `horizon` matches.
    pub(super) fn next(&self, after: NaiveDateTime, horizon: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = after.with_nanosecond(0)?.checked_add_signed(Duration::seconds(1))?;
        let (mut date, mut earliest) = (from.date(), from.time());
        while date <= horizon.date() {
            if !has(self.months, date.month()) {
                date = date.with_day(1)?.checked_add_months(Months::new(1))?;
            } else if let Some(time) = self.matches_date(date).then(|| self.next_time(earliest)).flatten() {
                return Some(date.and_time(time));
            } else {
                date = date.checked_add_days(Days::new(1))?;
            }
            earliest = NaiveTime::MIN;
        }
        None
    }

    /// Returns whether `date` matches the day fields. The caller checks the month.
    fn matches_date(&self, date: NaiveDate) -> bool {
        let (day, weekday) = (self.days.has(date), self.weekdays.has(date));
        if self.needs_both { day && weekday } else { day || weekday }
    }

    /// Returns the first matching time of day, no earlier than `from`.
    fn next_time(&self, from: NaiveTime) -> Option<NaiveTime> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let in_minute = || Some((hour, minute, next_bit(self.seconds, second)?)).filter(|_| has(self.minutes, minute));
        let in_hour = || Some((hour, next_bit(self.minutes, minute + 1)?, next_bit(self.seconds, 0)?));
        let in_day = || Some((next_bit(self.hours, hour + 1)?, next_bit(self.minutes, 0)?, next_bit(self.seconds, 0)?));
        let found = in_minute().or_else(in_hour).filter(|_| has(self.hours, hour)).or_else(in_day);
        found.and_then(|(hour, minute, second)| NaiveTime::from_hms_opt(hour, minute, second))
    }
}

impl MonthDays {
    fn new(text: &str) -> Result<Self, String> {
        let mut days = Self::default();
        for entry in DAY.split_entries(text)? {
            let upper = entry.to_ascii_uppercase();
            if let Some(part) = entry.split(['-', '/']).find(|part| part.len() < entry.len() && is_special(part)) {
                return Err(format!(
                    "the {} `{entry}` has `{part}` in a range; write `L` for the last day, `LW` for the last weekday, `15W` for the weekday nearest \
                     to the 15th, or a range of numbers",
                    DAY.name
                ));
            }
            match upper.strip_suffix('W') {
                _ if upper == "L" => days.last = true,
                Some("L") => days.last_weekday = true,
                Some(day) if parse_number(day).is_some() => days.nearest |= DAY.parse_entry(day)?,
                _ => days.plain |= DAY.parse_entry(entry)?,
            }
        }
        Ok(days)
    }

    fn has(&self, date: NaiveDate) -> bool {
        let length = u32::from(date.num_days_in_month());
        let is_nearest = |to: u32| date.with_day(to).is_some_and(|to| nearest_weekday(to) == date.day());
        has(self.plain, date.day())
            || self.last && date.day() == length
            || self.last_weekday && is_nearest(length)
            || (1..=length).any(|to| has(self.nearest, to) && is_nearest(to))
    }
}

/// Returns whether `day` is `L`, `LW` or an entry such as `15W`. These entries are not allowed in a range.
fn is_special(day: &str) -> bool {
    let plain = day.strip_suffix(['W', 'w']);
    plain.unwrap_or(day).eq_ignore_ascii_case("L") || plain.is_some_and(|plain| parse_number(plain).is_some())
}

/// Returns the day of the month of the weekday (Monday to Friday) that is nearest to `date` and in the same month.
fn nearest_weekday(date: NaiveDate) -> u32 {
    let day = date.day();
    match date.weekday() {
        Weekday::Sat if day > 1 => day - 1,
        Weekday::Sat => day + 2,
        Weekday::Sun if day < u32::from(date.num_days_in_month()) => day + 1,
        Weekday::Sun => day - 2,
        _ => day,
    }
}

impl Weekdays {
    fn new(text: &str) -> Result<Self, String> {
        let mut days = Self::default();
        for entry in WEEKDAY.split_entries(text)? {
            if entry.split(['-', '/']).any(|part| part.eq_ignore_ascii_case("L")) {
                return Err(format!("the {} `{text}` has `L` without a day; write `FRIL` for the last Friday of the month", WEEKDAY.name));
            }
            let (span, nth) = entry.split_once('#').map_or((entry, None), |(span, nth)| (span, Some(nth)));
            let (span, is_last) = match span.strip_suffix(['L', 'l']) {
                Some(span) if nth.is_none() => (span, true),
                _ => (span, nth.is_some_and(|nth| nth.eq_ignore_ascii_case("L"))),
            };
            let bits = WEEKDAY.parse_entry(span)?;
            // Bit 7 is merged into bit 0, because both 0 and 7 mean Sunday.
            let bits = bits & 0x7F | bits >> 7;
            match nth.map(parse_number) {
                _ if is_last => days.last |= bits,
                None => days.nth.iter_mut().for_each(|nth| *nth |= bits),
                Some(Some(nth @ 1..=5)) => days.nth[nth as usize - 1] |= bits,
                Some(_) => {
                    return Err(format!(
                        "the {} `{entry}` has no such occurrence; write `{span}#1` to `{span}#5`, or `{span}L`",
                        WEEKDAY.name
                    ));
                }
            }
        }
        Ok(days)
    }

    fn has(&self, date: NaiveDate) -> bool {
        let weekday = date.weekday().num_days_from_sunday();
        let is_last = date.day() + 7 > u32::from(date.num_days_in_month());
        has(self.nth[date.day0() as usize / 7], weekday) || is_last && has(self.last, weekday)
    }
}

/// Returns the expression for a nickname such as `@daily`, given without the `@`.
fn expand_nickname(name: &str) -> Result<&'static str, String> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * SUN",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        every if every.split_whitespace().next() == Some("every") => {
            let interval: String = name.split_whitespace().skip(1).collect();
            let interval = if is_interval(&interval) { &interval } else { "90m" };
            return Err(format!("`@every` is not a cron expression; use `--every {interval}`, or the option `every = \"{interval}\"`"));
        }
        "reboot" => return Err("`@reboot` is not a time; enqueue the job where the program starts".to_owned()),
        _ => return Err("there is no such name; write `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`".to_owned()),
    })
}

/// Returns whether `text` is an interval, such as `1h30m`, that both the command-line option `--every` and the job option `every` accept.
/// The job option accepts neither weeks nor intervals below one second.
fn is_interval(text: &str) -> bool {
    let mut units = text.split(|letter: char| letter.is_ascii_digit()).filter(|unit| !unit.is_empty());
    text.starts_with(|first: char| ('1'..='9').contains(&first))
        && !text.ends_with(|last: char| last.is_ascii_digit())
        && units.all(|unit| ["s", "m", "h", "d"].contains(&unit))
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// Returns the lowest value in the set `bits` that is at least `from`, which must not exceed 60.
fn next_bit(bits: u64, from: u32) -> Option<u32> {
    let rest = bits >> from << from;
    (rest != 0).then(|| rest.trailing_zeros())
}

#[cfg(test)]
mod tests;
