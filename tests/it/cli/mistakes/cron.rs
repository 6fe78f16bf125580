//! Tests the CLI's error messages for invalid and missing schedules.

use super::{Fixture, Row};

pub(super) const ADD: &[Row] = &[
    ("cron", 2, "'test-cli cron' requires a subcommand but one was not | subcommands: list, show, add, remove, pause, resume, run,"),
    ("cron lst", 2, "unrecognized subcommand 'lst' | a similar subcommand exists: 'list'"),
    ("cron show", 2, "required arguments | <NAME>"),
    ("cron show nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron add", 2, "required arguments | --type <JOB_TYPE> | <NAME>"),
    ("cron add x --every 1h", 2, "required arguments | --type <JOB_TYPE>"),
    ("cron add x --type do", 2, "the schedule has no timing | give `--cron EXPRESSION` or `--every DURATION`"),
    ("cron add x --type do --every 5", 2, "for '--every <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration"),
    ("cron add x --type do --every 0s", 2, "the interval is 0s | it must be one second to 365 days"),
    ("cron add x --type do --every -1h", 2, "for '--every <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("cron add x --type do --every 1month", 2, "for '--every <DURATION>' | months and years differ in length; use `--cron '0 0 1 * *'`"),
    ("cron add x --type do --every 1ms", 2, "the interval is 1ms | it must be one second to 365 days"),
    ("cron add x --type do --every 1y", 2, "for '--every <DURATION>' | months and years differ in length; use `--cron"),
    ("cron add x --type do --cron '@every 5m'", 2, "`@every` is not a cron | use `--every 5m`, or the option `every = \"5m\"`"),
    ("cron add x --type do --cron '0 0 L-3 * *'", 2, "the day of the month `L-3` has `L` in a range | write `L` for the last day"),
    ("cron add x --type do --every 999999d", 2, "the interval is 999999 days | it must be one second to 365 days"),
    ("cron add x --type do --cron '* * *'", 2, "the cron expression `* * *` cannot be | write five fields, or six with seconds"),
    ("cron add x --type do --cron '99 * * * *'", 2, "the cron expression `99 * * * *` cannot be | write a number from 0 to 59"),
    ("cron add x --type do --cron '0 0 31 2 *'", 2, "the cron expression `0 0 31 2 *` cannot be | write one that a calendar has"),
    ("cron add x --type do --cron '* * * * FUNDAY'", 2, "the cron expression `* * * * FUNDAY` | write a number from 0 to 7, or one"),
    ("cron add x --type do --cron ''", 2, "the cron expression `` cannot be read: it | write five fields, or six with seconds"),
    ("cron add x --type do --cron '@dayly'", 2, "the cron expression `@dayly` cannot be | write `@hourly`, `@daily`, `@weekly`,"),
    ("cron add x --type do --cron '0 * * * *' --tz Mars/Olympus", 2, "unknown time zone | write a name like `Europe/Berlin` or"),
    ("cron add x --type do --cron '0 * * * *' --every 1h", 2, "the argument '--cron <EXPRESSION>' cannot be used with '--every"),
    ("cron add x --type do --every 1h --tz UTC", 2, "the argument '--every <DURATION>' cannot be used with '--tz <ZONE>'"),
    ("cron add x --type do --every 1h --payload '{'", 2, "for '--payload <JSON>' | the payload is not JSON: EOF while parsing an"),
    ("cron add x --type do --every 1h --payload '{act: 1}'", 2, "for '--payload <JSON>' | the payload is not JSON: key must be a"),
    ("cron add x --type do --every 1h --payload-version 0", 2, "for '--payload-version <N>' | the payload version must be a whole"),
    ("cron add x --type do --every 1h --payload-version 70000", 2, "for '--payload-version <N>' | the payload version must be a"),
    ("cron add x --type do --every 1h --missed never", 2, "for '--missed <POLICY>' | the policy for missed ticks must be `coalesce`,"),
    ("cron add x --type do --every 1h --missed 'catch_up(0)'", 2, "for '--missed <POLICY>' | the policy for missed ticks must be"),
    ("cron add x --type do --every 1h --overlap no", 2, "for '--overlap <POLICY>' | the policy for overlaps must be `skip`, `allow` or"),
    ("cron add x --type do --every 1h --grace 5", 2, "for '--grace <DURATION>' | time unit needed, for example 5sec or 5ms; write"),
    ("cron add x --type do --every 1h --jitter -1s", 2, "for '--jitter <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("cron add 'a b' --type do --every 1h", 2, "`a b` is not a valid schedule name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("cron add '' --type do --every 1h", 2, "`` is not a valid schedule name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("cron add x --type 'a b' --every 1h", 2, "`a b` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("cron add z --type do --every 1h --grace 0s", 2, "grace is 0s | it must be 1 second to 365 days"),
    ("cron add z --type do --every 1h --grace 400d", 2, "grace is 400 days | it must be 1 second to 365 days"),
    ("cron add z --type do --every 1h --jitter 30d", 2, "jitter is 30 days | it must be at most 1 day"),
];

pub(super) const TICKS: &[Row] = &[
    ("cron add x --type nosuch --every 1h", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("cron add x --type do --every 1h --queue mail", 2, "unexpected argument '--queue' found"),
    ("cron remove", 2, "required arguments | <NAME>"),
    ("cron remove nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron remove x", 0, "x is removed"),
    ("cron remove x", 3, "there is no schedule `x` | `test-cli cron list` shows the existing ones"),
    ("cron pause nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron add y --type do --every 1h", 0, "y is scheduled"),
    ("cron pause y", 0, "y is paused"),
    ("cron pause y", 0, "y is paused"),
    ("cron resume nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron resume y", 0, "y is resumed"),
    ("cron resume y", 0, "y is resumed"),
    ("cron run", 2, "required arguments | <NAME>"),
    ("cron run --all", 2, "unexpected argument '--all' found"),
    ("cron run nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron skip nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron skip y", 2, "the next tick of the schedule y is unknown until a worker computes it | start a worker"),
    ("cron skip y", 2, "the next tick of the schedule y is unknown until a worker computes it | start a worker"),
    ("cron skip y --count 3", 2, "unexpected argument '--count' found | a similar argument exists: '--config'"),
    ("cron pause y", 0, "y is paused"),
    ("cron skip y", 2, "the next tick of the schedule y is unknown until a worker computes it | start a worker"),
    ("cron next", 2, "no schedule or expression is given | name a schedule, or give `--cron EXPRESSION` or `--every DURATION`"),
    ("cron next nosuch", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron next y --cron '* * * * *'", 2, "the argument '[NAME]' cannot be used with '--cron <EXPRESSION>'"),
    ("cron next --cron '* * *'", 2, "the cron expression `* * *` cannot be read: | write five fields, or six with seconds first,"),
    ("cron next --every 5", 2, "for '--every <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like `30s`,"),
    ("cron next --every 0s", 2, "the interval is 0s | it must be one second to 365 days"),
    ("cron next --cron '* * * * *' --count -1", 2, "for '--count <N>' | expected a whole number from 1 to 65535"),
    ("cron next --cron '* * * * *' --count 0", 2, "for '--count <N>' | expected a whole number from 1 to 65535"),
    ("cron next --cron '* * * * *' --count 99999", 2, "for '--count <N>' | expected a whole number from 1 to 65535"),
    ("cron next --cron '* * * * *' --tz Berlin", 2, "unknown time zone `Berlin` | write a name like `Europe/Berlin` or `UTC`"),
    ("cron next --tz UTC", 2, "required arguments | --cron <EXPRESSION>"),
    ("cron next --cron '0 0 30 2 *'", 2, "the cron expression `0 0 30 2 *` cannot be read: there | write one that a calendar has"),
    ("cron schedule x --every 1h", 2, "unrecognized subcommand 'schedule'"),
    ("cron list x", 2, "unexpected argument 'x' found"),
    ("cron list --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("cron list --jsn", 2, "unexpected argument '--jsn' found | a similar argument exists: '--json'"),
    ("cron show", 2, "required arguments | <NAME>"),
    ("cron show 'a b'", 3, "there is no schedule `a b` | `test-cli cron list` shows the existing ones"),
    ("cron show nosuch --json", 3, "there is no schedule `nosuch` | `test-cli cron list` shows the existing ones"),
    ("cron remove --all", 2, "unexpected argument '--all' found"),
    ("cron resume --all", 2, "unexpected argument '--all' found"),
    ("cron pause", 2, "required arguments | <NAME>"),
    ("cron resume", 2, "required arguments | <NAME>"),
    ("cron skip", 2, "required arguments | <NAME>"),
];

#[tokio::test]
async fn an_impossible_schedule_is_not_created() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ADD);
    fixture.db.finish().await;
}

#[tokio::test]
async fn a_missing_schedule_is_not_changed() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, TICKS);
    fixture.db.finish().await;
}
