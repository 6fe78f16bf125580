//! Tests that compare the run times of cron expressions with those of an independent matcher. One set of expressions is compared around
//! clock changes. Generated expressions are compared at random times.

use std::{collections::BTreeSet, ops::Range};

use chrono::{DateTime, Duration, TimeZone as _, Utc};
use chrono_tz::Tz;
use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use self::pattern::{MONTHS, Pattern, WEEKDAYS};
use super::Cron;

mod pattern;

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

const EXPRESSIONS: [&str; 50] = [
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
    "30 2 L * *",
    "0 2 LW 3,10 *",
    "30 1 15W,31W * *",
    "30 2 * * SUN#2,SUNL",
    "0 0-3 * 3,10,11 0#1",
    "15,45 30 2 * * *",
    "*/20 59 1 * * *",
    "30 */10 2 * * SUN",
    "0,59 59 0-3 25-31 * +SUNL",
    "*/7 0,30 * L,1 * ?",
];

/// Civil time in one time zone at every minute from `begin` on. Both fields are in minutes since 1970.
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

    /// Returns the ranges of minutes from two days before to two days after each clock change.
    fn changes(&self) -> Vec<Range<usize>> {
        const SPAN: usize = 2 * 1440;
        let all = SPAN + 1..self.civil.len() - SPAN;
        all.filter(|at| self.civil[*at] != self.civil[at - 1] + 1).map(|at| at - SPAN..at + SPAN).collect()
    }

    /// Returns the run times of `pattern` within `span`, as Unix times in seconds. Assumes that clocks change only at whole minutes.
    fn runs(&self, pattern: &Pattern, span: &Range<usize>) -> Vec<i64> {
        let mut runs = BTreeSet::new();
        let (mut highest, mut before) = (i64::MIN, None);
        for at in span.start.saturating_sub(3000)..span.end {
            let (civil, real) = (self.civil[at], (self.begin + at as i64) * 60);
            if (pattern.runs_at_intervals || civil > highest) && pattern.names(civil) {
                runs.extend(pattern.seconds.iter().map(|second| real + i64::from(*second)));
            }
            if !pattern.runs_at_intervals && civil > highest {
                let mut passed_over = before.map_or(civil, |before: i64| before.max(highest) + 1)..civil;
                runs.extend(passed_over.any(|civil| pattern.names(civil)).then_some(real));
                highest = civil;
            }
            before = Some(civil);
        }
        let begin = self.begin;
        runs.into_iter().filter(|real| span.contains(&((real / 60 - begin) as usize))).collect()
    }
}

/// Compares the run times within `span` with those of the independent matcher. Returns a description of the first difference, and the
/// expected number of runs.
fn compare(clock: &Clock, zone: &str, expression: &str, span: &Range<usize>) -> (Option<String>, usize) {
    let cron = Cron::new(expression, zone).unwrap();
    let moment = |at: usize| DateTime::from_timestamp((clock.begin + at as i64) * 60, 0).unwrap();
    let first = cron.next(moment(span.start) - Duration::nanoseconds(1));
    let ticks = std::iter::successors(first, |tick| cron.next(*tick)).take_while(|tick| *tick < moment(span.end));
    let ticks: Vec<i64> = ticks.map(|tick| tick.timestamp()).collect();
    let expected = clock.runs(&Pattern::new(expression).unwrap(), span);
    let wrong = ticks.iter().zip(&expected).find(|(tick, expected)| tick != expected);
    let fault = (ticks != expected).then(|| format!("{zone} `{expression}`: {} and not {}, first {wrong:?}", ticks.len(), expected.len()));
    (fault, expected.len())
}

/// Asserts that the run times of all [`EXPRESSIONS`] in the time zones `zones` agree with the independent matcher. Covers nearly five years
/// if `all` is set, otherwise the days around clock changes. Returns the number of clock changes and the number of runs.
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
fn fifty_expressions_match_the_oracle_in_one_zone() {
    let (changes, runs) = agree_with_the_oracle(&ZONES[..1], false);
    assert!(changes > 0 && runs > 10_000, "{changes} changes, {runs} runs");
}

/// Covers the days around clock changes, or nearly five years with `QUEUE_TEST_DST=1`.
#[test]
#[ignore = "deep"]
fn fifty_expressions_match_the_oracle_in_eleven_zones() {
    let (changes, runs) = agree_with_the_oracle(&ZONES, std::env::var_os("QUEUE_TEST_DST").is_some());
    assert!(changes >= 70 && runs > 500_000, "{changes} changes, {runs} runs");
}

/// Covers the time zone of Apia, which skipped 30 December 2011.
#[test]
fn a_skipped_day_runs_at_its_end() {
    let clock = Clock::of("Pacific/Apia".parse().unwrap(), 2011..2013);
    let faults: Vec<String> =
        clock.changes().iter().flat_map(|span| EXPRESSIONS.map(|it| compare(&clock, "Pacific/Apia", it, span).0)).flatten().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Generates the entries of one field. Most entries are valid. Some valid entries follow one of the field's `forms`, with a value in
/// place of `1`. Invalid entries are malformed or empty, have a value or a step out of range, or use the names of another field.
fn entries((first, last): (u32, u32), names: &'static [&'static str], forms: &'static [&'static str]) -> impl Strategy<Value = String> {
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
    let own = (0..forms.len().max(1), right.clone()).prop_map(|(form, right)| match forms.get(form) {
        Some(form) if !right.contains(['-', '*']) || form.contains(['#', 'L']) => form.replace('1', &right),
        Some(form) => form.replace('1', "15"),
        None => right,
    });
    let wrong = prop_oneof![
        prop::sample::select(&["", "L/2", "L-3", "W", "1-5W", "FRI#6", "x", "-1", "5-", "*-5", "1/2/3", "MON5", "MONDAY", "*/0"][..])
            .prop_map(str::to_owned),
        prop::sample::select(&WEEKDAYS[..]).prop_map(str::to_owned),
        prop::sample::select(&MONTHS[..]).prop_map(str::to_owned),
        (0..100u32).prop_map(|value| value.to_string()),
        (0..100u32).prop_map(|step| format!("*/{step}")),
        (first..=last, 1..50u32).prop_map(|(value, step)| format!("{value}/{step}")),
    ];
    prop::collection::vec(prop_oneof![20 => right, 10 => own, 1 => wrong], 1..4).prop_map(|entries| entries.join(","))
}

/// Generates nicknames and expressions with five or six fields, in upper or lower case.
fn expressions() -> impl Strategy<Value = String> {
    let seconds = prop_oneof![2 => Just(String::new()), 1 => entries((0, 59), &[], &[]).prop_map(|second| second + " ")];
    let days = entries((1, 31), &[], &["L", "LW", "1W", "?"]);
    let weekdays = entries((0, 7), &WEEKDAYS, &["1#2", "1#3", "1#5", "1#L", "1L", "?"]);
    let weekdays = (weekdays, 0..4).prop_map(|(days, form)| if form == 0 { format!("+{days}") } else { days });
    let fields = (seconds, entries((0, 59), &[], &[]), entries((0, 23), &[], &[]), days, entries((1, 12), &MONTHS, &[]), weekdays);
    let fields = fields.prop_map(|(second, minute, hour, day, month, weekday)| format!("{second}{minute} {hour} {day} {month} {weekday}"));
    let nicknames = prop::sample::select(
        &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot", "@every 5m", "@daily 5", "@"][..],
    );
    let all = prop_oneof![30 => fields, 1 => nicknames.prop_map(str::to_owned)];
    (all, any::<bool>()).prop_map(|(text, is_lower)| if is_lower { text.to_ascii_lowercase() } else { text.to_ascii_uppercase() })
}

/// Maximum number of run times that are compared for each expression.
const TICKS: usize = 7;

/// Texts that identify syntax forms in an expression; `six` stands for six fields. The test counts the expressions of each form.
const FORMS: [&str; 9] = ["L ", "LW", "W", "#", "#L", "?", "+", "@", "six"];

/// Compares the run times of generated expressions with those of the independent matcher. The random seed is fixed, so each run tests the
/// same expressions.
#[test]
fn ten_thousand_expressions_match_the_oracle() {
    let (mut counts, mut ran) = ([0; 3], [0; FORMS.len()]);
    let config = ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::XorShift));
    let counted = std::cell::RefCell::new((&mut counts, &mut ran));
    let cases = (expressions(), 0..20 * 525_960i64).prop_map(|(expression, from)| (expression, from / 1440 * 1440));
    let agree = runner.run(&cases, |(expression, from)| {
        let expected = Pattern::new(&expression).map(|pattern| pattern.first(from, TICKS));
        let at = DateTime::from_timestamp(from * 60, 0).unwrap() - Duration::seconds(1);
        let read = Cron::new(&expression, "UTC");
        let ticks = read.as_ref().ok().map(|cron| {
            let ticks = std::iter::successors(cron.next(at), |tick| cron.next(*tick)).map(|tick| tick.timestamp());
            ticks.take(TICKS).take_while(|tick| *tick < (from + 3653 * 1440) * 60).collect::<Vec<_>>()
        });
        let is_date = !expected.as_ref().is_some_and(Vec::is_empty);
        let (counts, ran) = &mut *counted.borrow_mut();
        counts[if expected.is_none() { 0 } else { usize::from(is_date) + 1 }] += 1;
        if is_date {
            prop_assert_eq!(&ticks, &expected, "{}", expression);
            let upper = expression.to_ascii_uppercase();
            let has = |form: &str| upper.contains(form) || form == "six" && upper.split_whitespace().count() == 6;
            ran.iter_mut().zip(FORMS).for_each(|(count, form)| *count += usize::from(expected.is_some() && has(form)));
        }
        prop_assert!(
            read.is_ok() || read.is_err_and(|why| ["; write ", "; use ", "; enqueue "].iter().any(|fix| why.contains(fix))),
            "a rejection proposes a fix"
        );
        Ok(())
    });
    assert_eq!(agree, Ok(()), "{counts:?}");
    assert!(counts[0] > 1000 && counts[2] > 5000, "rejected, without a date, and run: {counts:?}");
    assert!(ran.iter().all(|count| *count > 100), "runs of each of {FORMS:?}: {ran:?}");
}
