//! Matcher for cron expressions that shares no code with the tested parser. The matcher determines all names that the day fields can use
//! for a date, such as `L` or `15W`, by counting days in the date's month.

use std::{collections::BTreeSet, ops::Range, sync::OnceLock};

use chrono::{DateTime, Datelike as _, Days, NaiveDate, Weekday};

pub(super) const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
pub(super) const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

const NICKNAMES: [(&str, &str); 7] = [
    ("@YEARLY", "0 0 1 1 *"),
    ("@ANNUALLY", "0 0 1 1 *"),
    ("@MONTHLY", "0 0 1 * *"),
    ("@WEEKLY", "0 0 * * 0"),
    ("@DAILY", "0 0 * * *"),
    ("@MIDNIGHT", "0 0 * * *"),
    ("@HOURLY", "0 * * * *"),
];

/// Name that the day fields can use for a date.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DateName {
    Day(u32),
    LastDay,
    LastWorkday,
    WorkdayNearest(u32),
    Weekday(u32),
    NthWeekday(u32, u32),
    LastWeekday(u32),
}

/// Parsed expression, with the values that each field lists.
pub(super) struct Pattern {
    pub(super) seconds: BTreeSet<u32>,
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: BTreeSet<DateName>,
    months: BTreeSet<u32>,
    weekdays: BTreeSet<DateName>,
    needs_both: bool,
    pub(super) runs_at_intervals: bool,
}

impl Pattern {
    /// Parses an expression. Returns `None` if the expression must be rejected.
    pub(super) fn new(expression: &str) -> Option<Self> {
        let upper = expression.to_ascii_uppercase();
        let text = match NICKNAMES.iter().find(|(name, _)| *name == upper) {
            Some((_, text)) => text,
            None => &*upper,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let (second, fields) = if fields.len() == 6 { (fields[0], &fields[1..]) } else { ("0", &fields[..]) };
        let &[minute, hour, day, month, weekday] = fields else { return None };
        let (day, weekday) = (day.replace('?', "*"), weekday.replace('?', "*"));
        let is_star = |text: &str| text.starts_with('*');
        Some(Self {
            seconds: field(second, 0..60, &[])?,
            minutes: field(minute, 0..60, &[])?,
            hours: field(hour, 0..24, &[])?,
            days: each(&day, names_of_days)?,
            months: field(month, 1..13, &MONTHS)?,
            weekdays: each(weekday.strip_prefix('+').unwrap_or(&weekday), names_of_weekdays)?,
            needs_both: is_star(&day) || is_star(&weekday) || weekday.starts_with('+'),
            runs_at_intervals: is_star(minute) || is_star(hour),
        })
    }

    /// Returns at most `most` matching times as Unix timestamps, in ascending order. The search starts at `from`, a midnight in minutes
    /// since the Unix epoch, and covers ten years.
    pub(super) fn first(&self, from: i64, most: usize) -> Vec<i64> {
        let days = (0..3653).map(|day| from + day * 1440).filter(|day| self.names_date(*day));
        let hours = days.flat_map(|day| (0..24).map(move |hour| day + hour * 60)).filter(|hour| self.names_hour(*hour));
        let minutes = hours.flat_map(|hour| hour..hour + 60).filter(|minute| self.names(*minute));
        minutes.flat_map(|minute| self.seconds.iter().map(move |second| minute * 60 + i64::from(*second))).take(most).collect()
    }

    /// Returns whether the expression matches the civil time `civil`, given in minutes since 1970.
    pub(super) fn names(&self, civil: i64) -> bool {
        self.minutes.contains(&(civil.rem_euclid(60) as u32)) && self.names_hour(civil) && self.names_date(civil)
    }

    fn names_hour(&self, civil: i64) -> bool {
        self.hours.contains(&(civil.rem_euclid(1440) as u32 / 60))
    }

    fn names_date(&self, civil: i64) -> bool {
        let day = civil.div_euclid(1440);
        let (month, names) = CALENDAR[day as usize].get_or_init(|| {
            let date = DateTime::from_timestamp(day * 86_400, 0).unwrap().date_naive();
            (date.month(), names_of(date))
        });
        let lists = |listed: &BTreeSet<DateName>| names.iter().any(|name| listed.contains(name));
        self.months.contains(month)
            && if self.needs_both { lists(&self.days) && lists(&self.weekdays) } else { lists(&self.days) || lists(&self.weekdays) }
    }
}

/// Month and names of each date from 1970 to March 2030, computed on first use.
static CALENDAR: [OnceLock<(u32, Vec<DateName>)>; 22_000] = [const { OnceLock::new() }; 22_000];

/// Returns all names that the day fields can use for `date`.
fn names_of(date: NaiveDate) -> Vec<DateName> {
    let day_of = |date: NaiveDate| date.weekday().num_days_from_sunday();
    let in_month = |other: &NaiveDate| (other.year(), other.month()) == (date.year(), date.month());
    let around = |days: i64| date.checked_add_signed(chrono::Duration::days(days)).filter(in_month);
    let is_workday = |date: NaiveDate| !matches!(date.weekday(), Weekday::Sat | Weekday::Sun);
    let weeks = (0..5).filter(|weeks| date.checked_sub_days(Days::new(7 * weeks)).as_ref().is_some_and(in_month)).count() as u32;
    let mut names = vec![DateName::Day(date.day()), DateName::Weekday(day_of(date)), DateName::NthWeekday(day_of(date), weeks)];
    names.extend(around(1).is_none().then_some(DateName::LastDay));
    names.extend(around(7).is_none().then_some(DateName::LastWeekday(day_of(date))));
    if is_workday(date) {
        names.extend((1..4).filter_map(around).all(|later| !is_workday(later)).then_some(DateName::LastWorkday));
        // A workday is the nearest workday to itself. A workday is also the nearest workday to a Saturday or Sunday if no other workday of
        // the month is nearer. The distance is at most two days.
        for to in (-2..3).filter_map(around).filter(|to| *to == date || !is_workday(*to)) {
            let nearest = (-4..5).filter_map(around).filter(|day| is_workday(*day)).min_by_key(|day| (*day - to).num_days().abs());
            names.extend((nearest == Some(date)).then_some(DateName::WorkdayNearest(to.day())));
        }
    }
    names
}

/// Returns the date names in the comma-separated entries of a field, or `None` if an entry is invalid.
fn each(text: &str, names: impl Fn(&str) -> Option<Vec<DateName>>) -> Option<BTreeSet<DateName>> {
    text.split(',').map(names).collect::<Option<Vec<_>>>().map(|names| names.into_iter().flatten().collect())
}

fn names_of_days(entry: &str) -> Option<Vec<DateName>> {
    Some(match entry.strip_suffix('W') {
        Some("L") => vec![DateName::LastWorkday],
        Some(day) if !day.contains(['-', '/', '*']) => field(day, 1..32, &[])?.into_iter().map(DateName::WorkdayNearest).collect(),
        _ if entry == "L" => vec![DateName::LastDay],
        _ => field(entry, 1..32, &[])?.into_iter().map(DateName::Day).collect(),
    })
}

fn names_of_weekdays(entry: &str) -> Option<Vec<DateName>> {
    let of = |text: &str, name: &dyn Fn(u32) -> DateName| Some(field(text, 0..7, &WEEKDAYS)?.into_iter().map(name).collect());
    match entry.split_once('#') {
        Some((days, "L")) => of(days, &DateName::LastWeekday),
        Some((days, nth)) if ["1", "2", "3", "4", "5"].contains(&nth) => of(days, &|day| DateName::NthWeekday(day, nth.parse().unwrap())),
        Some(_) => None,
        None => match entry.strip_suffix('L') {
            Some(days) => of(days, &DateName::LastWeekday),
            None => of(entry, &DateName::Weekday),
        },
    }
}

/// Parses a list of values, ranges and steps into its values. Returns `None` if the list must be rejected.
fn field(text: &str, range: Range<u32>, names: &[&str]) -> Option<BTreeSet<u32>> {
    let number = |text: &str| {
        let named = names.iter().position(|name| *name == text).map(|at| at as u32 + range.start);
        let number = named.or_else(|| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?)?;
        (range.contains(&number) || names == WEEKDAYS && number == 7).then_some(number)
    };
    let mut values = BTreeSet::new();
    for part in text.split(',') {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let span = match span.split_once('-') {
            _ if span == "*" => range.clone(),
            Some((first, "SUN")) if names == WEEKDAYS => number(first)?..8,
            Some((first, last)) => number(first)?..number(last)? + 1,
            None if step.is_some() => return None,
            None => number(span)?..number(span)? + 1,
        };
        let step = step.map_or(Some(1), |step| step.parse::<usize>().ok())?;
        if !(1..=span.len()).contains(&step) {
            return None;
        }
        values.extend(span.step_by(step));
    }
    if names == WEEKDAYS && values.remove(&7) {
        values.insert(0);
    }
    Some(values)
}
