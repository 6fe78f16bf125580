//! Tests that errors about invalid expressions propose a fix. Also tests the syntax that Debian's cron does not support.

use chrono::{DateTime, TimeZone as _, Utc};

use crate::Cron;

#[test]
fn invalid_expressions_are_rejected_with_the_field_and_a_fix() {
    for (expression, field, fix) in [
        ("", "0 fields", "write five"),
        ("* * *", "3 fields", "write five"),
        ("0 0 * * * * *", "7 fields", "write five"),
        ("x y z a b", "the minute cannot be `x`", "a number from 0 to 59"),
        ("60 * * * *", "the minute `60` is out of range", "from 0 to 59"),
        ("* 24 * * *", "the hour `24` is out of range", "from 0 to 23"),
        ("0 0 0 * *", "the day of the month `0`", "from 1 to 31"),
        ("0 0 * 13 *", "the month `13`", "from 1 to 12"),
        ("0 0 * * 8", "the day of the week `8`", "from 0 to 7"),
        ("60 0 0 * * *", "the second `60`", "from 0 to 59"),
        ("0 9 MON * *", "the day of the month cannot be `MON`", "days of the week in the last field"),
        ("0 0 mon5 * *", "the day of the month cannot be `mon5`", "from 1 to 31"),
        ("0 0 * * JAN", "the day of the week cannot be `JAN`", "months in the second to last field"),
        ("0 0 * FRI *", "the month cannot be `FRI`", "days of the week in the last field"),
        ("MON * * * *", "the minute cannot be `MON`", "days of the week in the last field"),
        ("0 JAN * * *", "the hour cannot be `JAN`", "months in the second to last field"),
        ("0 0 * * MONDAY", "cannot be `MONDAY`", "one of SUN, MON"),
        ("5, * * * *", "the minute `5,` has an empty entry", "write no comma"),
        (", * * * *", "the minute `,` has an empty entry", "write no comma"),
        ("0 5,,10 * * *", "the hour `5,,10` has an empty entry", "write no comma"),
        ("0 0 ,1 * *", "the day of the month `,1` has an empty entry", "write no comma"),
        ("0 0 * 1, *", "the month `1,`", "write no comma"),
        ("0 0 * * MON,", "the day of the week `MON,`", "write no comma"),
        ("0 0 * * FRI#6", "`FRI#6`", "`FRI#1`"),
        ("0 0 * * FRI#", "`FRI#`", "`FRI#1`"),
        ("0 L * * *", "the hour cannot be `L`", "from 0 to 23"),
        ("30-10 * * * *", "`30-10` ends before it begins", "two ranges"),
        ("0 0 * * FRI-MON", "`FRI-MON` ends before it begins", "two ranges"),
        ("5/10 * * * *", "`5/10` has a step and no range", "`5-59/10`"),
        ("/10 * * * *", "the minute `/10` has a step and no range", "write `*/10`"),
        ("*/0 * * * *", "the minute `*/0`", "one from 1 to 60"),
        ("*/x * * * *", "the minute `*/x`", "one from 1 to 60"),
        ("*/90 * * * *", "the minute `*/90`", "use `--every 90m`"),
        ("0 */36 * * *", "the hour `*/36`", "use `--every 36h`"),
        ("*/61 * * * * *", "the second `*/61`", "use `--every 61s`"),
        ("0 0 */40 * *", "the day of the month `*/40`", "use `--every 40d`"),
        ("0 0 * * */8", "the day of the week `*/8`", "use `--every 8d`"),
        ("0 0 1 */13 *", "the month `*/13`", "one from 1 to 12"),
        ("10-20/12 * * * *", "the minute `10-20/12`", "one from 1 to 11"),
        ("+5 * * * *", "the minute cannot be `+5`", "from 0 to 59"),
        ("0 0 30 2 *", "no such date", "that a calendar has"),
        ("0 0 31 4,6,9,11 *", "no such date", "that a calendar has"),
        ("0 0 29 2 +MON#1", "no such date", "that a calendar has"),
        ("@never", "no such name", "`@daily`"),
        ("@daily 5", "no such name", "`@daily`"),
        ("@", "no such name", "`@daily`"),
        ("@reboot", "`@reboot` is not a time", "where the program starts"),
    ] {
        let why = Cron::new(expression, "UTC").unwrap_err();
        assert!(why.contains(&format!("`{expression}` cannot be read")) && why.contains(field) && why.contains(fix), "{expression}: {why}");
    }
    let why = Cron::new(&"1,".repeat(200), "UTC").unwrap_err();
    assert!(why.contains("256 bytes; write"), "{why}");
    let why = Cron::new("* * * * *", "Mars/Base").unwrap_err();
    assert!(why.contains("time zone `Mars/Base`; write"), "{why}");
    // The clock change skips this hour every year, so the search ends at the horizon.
    let never = Cron::new("* * 2 25-31 3 +SUN", "Europe/Berlin").unwrap();
    assert_eq!(never.next(Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap()), None);
}

#[test]
fn an_interval_is_proposed_where_it_can_be_written_and_only_if_it_is_one() {
    for (expression, proposed) in [
        ("@every 5m", "5m"),
        ("@EVERY 1h 30m", "1h30m"),
        ("@every", "90m"),
        ("@every 1M", "90m"),
        ("@every 90", "90m"),
        ("@every 0m", "90m"),
        ("@every 2w", "90m"),
        ("@every 500ms", "90m"),
        ("@every 5x", "90m"),
        ("@every `x`", "90m"),
    ] {
        let why = Cron::new(expression, "UTC").unwrap_err();
        let fix = format!("`@every` is not a cron expression; use `--every {proposed}`, or the option `every = \"{proposed}\"`");
        assert!(why.contains(&fix), "{expression}: {why}");
    }
}

#[test]
fn special_days_are_rejected_in_ranges() {
    for (expression, field, fix) in [
        ("0 0 * * L", "the day of the week `L`", "`FRIL`"),
        ("0 0 32W * *", "the day of the month `32`", "from 1 to 31"),
        ("0 0 W * *", "the day of the month cannot be `W`", "from 1 to 31"),
        ("0 0 L-3 * *", "the day of the month `L-3` has `L` in a range", "write `L` for the last day"),
        ("0 0 1-L * *", "the day of the month `1-L` has `L` in a range", "write `L` for the last day"),
        ("0 0 LW-2 * *", "the day of the month `LW-2` has `LW` in a range", "write `L` for the last day"),
        ("0 0 1-15w * *", "the day of the month `1-15w` has `15w` in a range", "write `L` for the last day"),
        ("0 0 * * L-3", "the day of the week `L-3`", "`FRIL`"),
    ] {
        let why = Cron::new(expression, "UTC").unwrap_err();
        assert!(why.contains(field) && why.contains(fix), "{expression}: {why}");
    }
}

#[test]
fn forms_beyond_debians_run_on_the_days_they_name() {
    for (expression, ticks) in [
        ("@hourly", "2026-01-01T01:00:00 2026-01-01T02:00:00"),
        ("@daily", "2026-01-02T00:00:00 2026-01-03T00:00:00"),
        ("@midnight", "2026-01-02T00:00:00 2026-01-03T00:00:00"),
        ("@Weekly", "2026-01-04T00:00:00 2026-01-11T00:00:00"),
        ("@monthly", "2026-02-01T00:00:00 2026-03-01T00:00:00"),
        ("@yearly", "2027-01-01T00:00:00 2028-01-01T00:00:00"),
        ("@annually", "2027-01-01T00:00:00 2028-01-01T00:00:00"),
        (" 30 4 * * mon-fri ", "2026-01-01T04:30:00 2026-01-02T04:30:00"),
        ("15,45 30 4 * * *", "2026-01-01T04:30:15 2026-01-01T04:30:45"),
        ("*/20 59 23 31 12 *", "2026-12-31T23:59:00 2026-12-31T23:59:20"),
        ("0 0 */2 * MON", "2026-01-05T00:00:00 2026-01-19T00:00:00"),
        ("0 0 13 * */5", "2026-02-13T00:00:00 2026-03-13T00:00:00"),
        ("0 0 13 * FRI", "2026-01-02T00:00:00 2026-01-09T00:00:00"),
        ("0 0 13 * +FRI", "2026-02-13T00:00:00 2026-03-13T00:00:00"),
        ("0 0 ? * SUN", "2026-01-04T00:00:00 2026-01-11T00:00:00"),
        ("0 0 5 * ?", "2026-01-05T00:00:00 2026-02-05T00:00:00"),
        ("0 0 L * *", "2026-01-31T00:00:00 2026-02-28T00:00:00"),
        ("0 0 1,L * *", "2026-01-31T00:00:00 2026-02-01T00:00:00"),
        ("0 0 LW * *", "2026-01-30T00:00:00 2026-02-27T00:00:00"),
        ("0 0 1W * *", "2026-02-02T00:00:00 2026-03-02T00:00:00"),
        ("0 0 17w * *", "2026-01-16T00:00:00 2026-02-17T00:00:00"),
        ("0 0 31W * *", "2026-01-30T00:00:00 2026-03-31T00:00:00"),
        ("0 0 * * FRI#2", "2026-01-09T00:00:00 2026-02-13T00:00:00"),
        ("0 0 * * 5#5", "2026-01-30T00:00:00 2026-05-29T00:00:00"),
        ("0 0 * * MON-FRI#1", "2026-01-02T00:00:00 2026-01-05T00:00:00"),
        ("0 0 * * FRIL", "2026-01-30T00:00:00 2026-02-27T00:00:00"),
        ("0 0 * * 7l", "2026-01-25T00:00:00 2026-02-22T00:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00 2032-02-29T00:00:00"),
        ("0 0 29 2 +TUE", "2028-02-29T00:00:00 2056-02-29T00:00:00"),
    ] {
        let cron = Cron::new(expression, "UTC").unwrap();
        let first = cron.next(DateTime::from_timestamp(1_767_225_600, 0).unwrap()).unwrap();
        let found = [first, cron.next(first).unwrap()].map(|tick| tick.format("%FT%T").to_string()).join(" ");
        assert_eq!(found, ticks, "{expression}");
    }
}
