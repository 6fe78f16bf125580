//! An oracle: a matcher of its own, asked at every minute of the real time around each change of the clocks.

use std::{collections::BTreeSet, ops::Range};

use chrono::{DateTime, Datelike as _, Duration, TimeZone as _, Utc};
use chrono_tz::Tz;
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use super::Cron;

const ZONES: [&str; 11] = [
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "America/Nuuk",
    "Antarctica/Troll",
    "America/Havana",
    "UTC",
];

const EXPRESSIONS: [&str; 40] = [
    "30 2 * * *",
    "0 2 * * *",
    "0 0 * * *",
    "30 0 * * *",
    "30 1 * * *",
    "0 1 * * *",
    "59 1 * * *",
    "0 3 * * *",
    "15 3 * * *",
    "*/15 * * * *",
    "*/30 * * * *",
    "* * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "30 */3 * * *",
    "0,30 2 * * *",
    "0 1,2 * * *",
    "0 9,17 * * *",
    "0 1-4 * * *",
    "*/10 2 * * *",
    "5,35 0-3 * * *",
    "0 2 * * SUN",
    "30 2 * * SUN",
    "0 9 * * MON-FRI",
    "30 1 1 * *",
    "0 0 1 1 *",
    "0 0 29 2 *",
    "0 12 13 * FRI",
    "0 0 1 * MON",
    "0 2 31 3 *",
    "30 2 25-31 10 SUN",
    "0 0 15 * *",
    "45 23 * * SAT",
    "1-59/2 1-3 * * *",
    "0 2,3 * * *",
    "20 2,14 * 3,4,10,11 *",
    "0 22 * * 1-5",
    "55 1 * MAR,OCT *",
];

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// An expression, each field as the values that it names.
struct Pattern {
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: BTreeSet<u32>,
    months: BTreeSet<u32>,
    weekdays: BTreeSet<u32>,
    any_day: bool,
    is_of_intervals: bool,
}

/// The values of a field; none if it is to be refused.
fn field(text: &str, range: Range<u32>, names: &[&str]) -> Option<BTreeSet<u32>> {
    let number = |text: &str| {
        let named = names.iter().position(|name| *name == text).map(|at| at as u32 + range.start);
        let number = named.or_else(|| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?)?;
        (range.contains(&number) || names == DAYS && number == 7).then_some(number)
    };
    let mut values = BTreeSet::new();
    for part in text.split(',') {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        let span = match span.split_once('-') {
            _ if span == "*" => range.clone(),
            Some((first, "SUN")) if names == DAYS => number(first)?..8,
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
    if names == DAYS && values.remove(&7) {
        values.insert(0);
    }
    Some(values)
}

impl Pattern {
    fn new(expression: &str) -> Option<Self> {
        let fields: Vec<&str> = expression.split(' ').collect();
        Some(Self {
            minutes: field(fields[0], 0..60, &[])?,
            hours: field(fields[1], 0..24, &[])?,
            days: field(fields[2], 1..32, &[])?,
            months: field(fields[3], 1..13, &MONTHS)?,
            weekdays: field(fields[4], 0..7, &DAYS)?,
            any_day: fields[2].starts_with('*') || fields[4].starts_with('*'),
            is_of_intervals: fields[0].starts_with('*') || fields[1].starts_with('*'),
        })
    }

    /// The first so many of its minutes from one on, looked for at each minute of a matching hour of ten years.
    fn first(&self, from: i64, most: usize) -> Vec<i64> {
        let days = (0..3653).map(|day| from + day * 1440).filter(|day| self.names_date(*day));
        let hours = days.flat_map(|day| (0..24).map(move |hour| day + hour * 60)).filter(|hour| self.names_hour(*hour));
        hours.flat_map(|hour| hour..hour + 60).filter(|minute| self.names(*minute)).take(most).collect()
    }

    /// Whether it names this civil time, in minutes since 1970.
    fn names(&self, civil: i64) -> bool {
        self.minutes.contains(&(civil.rem_euclid(60) as u32)) && self.names_hour(civil) && self.names_date(civil)
    }

    fn names_hour(&self, civil: i64) -> bool {
        self.hours.contains(&(civil.rem_euclid(1440) as u32 / 60))
    }

    fn names_date(&self, civil: i64) -> bool {
        let date = DateTime::from_timestamp(civil * 60, 0).unwrap().date_naive();
        let (day, weekday) = (self.days.contains(&date.day()), self.weekdays.contains(&date.weekday().num_days_from_sunday()));
        self.months.contains(&date.month()) && if self.any_day { day && weekday } else { day || weekday }
    }
}

/// The civil time of every minute of the real time from a moment on, both in minutes since 1970.
struct Clock {
    begin: i64,
    civil: Vec<i64>,
}

impl Clock {
    fn of(zone: Tz, years: Range<i32>) -> Self {
        let minute = |year| Utc.with_ymd_and_hms(year, 1, 1, 0, 0, 0).unwrap().timestamp() / 60;
        let civil = |minute: i64| zone.timestamp_opt(minute * 60, 0).unwrap().naive_local().and_utc().timestamp().div_euclid(60);
        let (begin, end) = (minute(years.start), minute(years.end));
        Self { begin, civil: (begin..end).map(civil).collect() }
    }

    /// Two days before and after each change.
    fn changes(&self) -> Vec<Range<usize>> {
        const SPAN: usize = 2 * 1440;
        let all = SPAN + 1..self.civil.len() - SPAN;
        all.filter(|at| self.civil[*at] != self.civil[at - 1] + 1).map(|at| at - SPAN..at + SPAN).collect()
    }

    /// The real minutes at which the expression runs.
    fn runs(&self, pattern: &Pattern, span: &Range<usize>) -> Vec<i64> {
        let mut runs = BTreeSet::new();
        let (mut highest, mut before) = (i64::MIN, None);
        for at in span.start.saturating_sub(3000)..span.end {
            let (civil, real) = (self.civil[at], self.begin + at as i64);
            if pattern.is_of_intervals {
                runs.extend(pattern.names(civil).then_some(real));
                continue;
            }
            if civil > highest {
                let passed_over = before.map_or(civil, |before: i64| before.max(highest) + 1)..civil;
                runs.extend((passed_over.clone().any(|civil| pattern.names(civil)) || pattern.names(civil)).then_some(real));
                highest = civil;
            }
            before = Some(civil);
        }
        let begin = self.begin;
        runs.into_iter().filter(|real| span.contains(&((real - begin) as usize))).collect()
    }
}

/// What is wrong in these minutes, and how often the expression runs in them.
fn compare(clock: &Clock, zone: &str, expression: &str, span: &Range<usize>) -> (Option<String>, usize) {
    let cron = Cron::new(expression, zone).unwrap();
    let moment = |at: usize| DateTime::from_timestamp((clock.begin + at as i64) * 60, 0).unwrap();
    let first = cron.next(moment(span.start) - Duration::nanoseconds(1));
    let ticks = std::iter::successors(first, |tick| cron.next(*tick)).take_while(|tick| *tick < moment(span.end));
    let ticks: Vec<i64> = ticks.map(|tick| tick.timestamp()).collect();
    let wanted: Vec<i64> = clock.runs(&Pattern::new(expression).unwrap(), span).into_iter().map(|minute| minute * 60).collect();
    let wrong = ticks.iter().zip(&wanted).find(|(tick, wanted)| tick != wanted);
    let fault = (ticks != wanted).then(|| format!("{zone} `{expression}`: {} and not {}, first {wrong:?}", ticks.len(), wanted.len()));
    (fault, wanted.len())
}

/// Compares all expressions in these zones around the changes of their clocks, or at every minute of five years; returns the numbers of changes and runs.
fn agree_with_the_oracle(zones: &[&str], all: bool) -> (usize, usize) {
    let (mut faults, mut runs, mut changes) = (Vec::new(), 0, 0);
    for zone in zones {
        let clock = Clock::of(zone.parse().unwrap(), 2024..2029);
        let spans = if all { std::iter::once(3000..clock.civil.len()).collect() } else { clock.changes() };
        changes += clock.changes().len();
        for (expression, span) in EXPRESSIONS.iter().flat_map(|expression| spans.iter().map(move |span| (expression, span))) {
            let (fault, count) = compare(&clock, zone, expression, span);
            faults.extend(fault);
            runs += count;
        }
    }
    assert!(faults.is_empty(), "{} of them, such as\n{}", faults.len(), faults.iter().take(20).cloned().collect::<Vec<_>>().join("\n"));
    (changes, runs)
}

#[test]
fn forty_expressions_run_as_the_oracle_says_in_one_zone() {
    let (changes, runs) = agree_with_the_oracle(&ZONES[..1], false);
    assert!(changes > 0 && runs > 10_000, "{changes} changes, {runs} runs");
}

/// `QUEUE_TEST_DST=1` looks at all minutes of five years, and not only at those around the changes of the clocks.
#[test]
#[ignore = "deep"]
fn forty_expressions_run_as_the_oracle_says_in_eleven_zones() {
    let (changes, runs) = agree_with_the_oracle(&ZONES, std::env::var_os("QUEUE_TEST_DST").is_some());
    assert!(changes >= 70 && runs > 500_000, "{changes} changes, {runs} runs");
}

/// On 30 December 2011 there was no day in Apia.
#[test]
fn a_day_that_was_passed_over_has_its_runs_at_its_end() {
    let clock = Clock::of("Pacific/Apia".parse().unwrap(), 2011..2013);
    let faults: Vec<String> =
        clock.changes().iter().flat_map(|span| EXPRESSIONS.map(|it| compare(&clock, "Pacific/Apia", it, span).0)).flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Entries of one field: mostly right ones, some with a value or a step out of range, a name of any field, a range that is turned, or nothing.
fn entries(first: u32, last: u32, names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let right = (first..=last, first..=last, 0..60u32, any::<bool>(), 0..5).prop_map(move |(one, other, step, named, form)| {
        let shown = |value: u32| match names.get((value - first) as usize) {
            Some(name) if named => (*name).to_owned(),
            _ => value.to_string(),
        };
        let (begin, end) = (one.min(other), one.max(other));
        match form {
            0 => "*".to_owned(),
            1 => shown(one),
            2 => format!("{}-{}", shown(begin), shown(end)),
            3 => format!("*/{}", 1 + step % (last - first + 1)),
            _ => format!("{}-{}/{}", shown(begin), shown(end), 1 + step % (end - begin + 1)),
        }
    });
    let wrong = prop_oneof![
        prop::sample::select(&["", "L/2", "x", "-1", "5-", "*-5", "1/2/3", "MON5", "MONDAY", "*/0"][..]).prop_map(str::to_owned),
        prop::sample::select(&DAYS[..]).prop_map(str::to_owned),
        prop::sample::select(&MONTHS[..]).prop_map(str::to_owned),
        (0..100u32).prop_map(|value| value.to_string()),
        (0..100u32).prop_map(|step| format!("*/{step}")),
        (first..=last, 1..50u32).prop_map(|(value, step)| format!("{value}/{step}")),
    ];
    prop::collection::vec(prop_oneof![30 => right, 1 => wrong], 1..4).prop_map(|entries| entries.join(","))
}

/// The seed is the same each time.
#[test]
fn ten_thousand_expressions_run_as_the_oracle_says_or_are_refused_as_it_says() {
    let mut counts = [0; 3];
    let config = ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let expressions = (entries(0, 59, &[]), entries(0, 23, &[]), entries(1, 31, &[]), entries(1, 12, &MONTHS), entries(0, 7, &DAYS));
    let counted = std::cell::RefCell::new(&mut counts);
    let cases = (expressions, 0..20 * 525_960i64)
        .prop_map(|((minute, hour, day, month, weekday), from)| (format!("{minute} {hour} {day} {month} {weekday}"), from / 1440 * 1440));
    let agree = runner.run(&cases, |(expression, from)| {
        let wanted = Pattern::new(&expression).map(|pattern| pattern.first(from, 12));
        let at = DateTime::from_timestamp(from * 60, 0).unwrap() - Duration::seconds(1);
        let read = Cron::new(&expression, "UTC");
        let ticks = read.as_ref().ok().map(|cron| {
            let ticks = std::iter::successors(cron.next(at), |tick| cron.next(*tick)).map(|tick| tick.timestamp() / 60);
            ticks.take(12).take_while(|tick| *tick < from + 3653 * 1440).collect::<Vec<_>>()
        });
        let is_date = !wanted.as_ref().is_some_and(Vec::is_empty);
        counted.borrow_mut()[if wanted.is_none() { 0 } else { usize::from(is_date) + 1 }] += 1;
        if is_date {
            prop_assert_eq!(&ticks, &wanted, "{}", expression);
        }
        prop_assert!(read.is_ok() || read.is_err_and(|why| why.contains("; write ") || why.contains("; use ")), "a refusal has its fix");
        Ok(())
    });
    assert_eq!(agree, Ok(()), "{counts:?}");
    assert!(counts[0] > 1000 && counts[2] > 5000, "so many were refused, had no date and ran: {counts:?}");
}
