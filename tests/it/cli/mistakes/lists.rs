//! Tests the CLI's error messages for lists, exports and statistics.

use super::{Fixture, Row};

pub(super) const LIST: &[Row] = &[
    ("list --state daed", 2, "for '--state <STATE>' | `daed` is not a job state; expected blocked, scheduled, ready, running,"),
    ("list --state DEAD", 2, "for '--state <STATE>' | `DEAD` is not a job state; expected blocked, scheduled, ready, running,"),
    ("list --state done", 2, "for '--state <STATE>' | `done` is not a job state; expected blocked, scheduled, ready, running,"),
    ("list --state failed", 2, "for '--state <STATE>' | `failed` is not a job state; expected blocked, scheduled, ready, running,"),
    ("list --state dead,ready", 2, "for '--state <STATE>' | `dead,ready` is not a job state; expected blocked, scheduled, ready,"),
    ("list --state dead --state ready", 2, "the argument '--state <STATE>' cannot be used multiple times"),
    ("list --queue nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("list --queue ''", 2, "`` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("list --queue", 2, "a value is required for '--queue <QUEUE>' but none was supplied"),
    ("list --queue mäil", 2, "`m\\u{e4}il` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("list --type dø", 2, "`d\\u{f8}` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("list --type sen_email", 0, "no job of the type `sen_email` has ever been enqueued | there are do, nosuchtype"),
    ("list --limit -5", 2, "for '--limit <N>' | expected a whole number from 1 to 4294967295"),
    ("list --limit 10k", 2, "for '--limit <N>' | expected a whole number from 1 to 4294967295"),
    ("list --limit 99999999999", 2, "for '--limit <N>' | expected a whole number from 1 to 4294967295"),
    ("list --before x", 2, "for '--before <ID>' | expected a job id, a number as shown by `list`"),
    ("list --since 5", 2, "for '--since <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like `30s`, `5m`"),
    ("list --since -1h", 2, "for '--since <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("list --since 2026-01-01", 2, "for '--since <DURATION>' | invalid character at 4; write a duration like `30s`, `5m` or `1h"),
    ("list --since 1h --older-than 2h", 2, "no job can be of the last 1h and older than 2h | `--since` must be longer than"),
    (
        "list --older-than 999999999999999999999d",
        2,
        "for '--older-than <DURATION>' | number is too large or cannot be represented without a",
    ),
    ("list --meta tenant", 2, "for '--meta <KEY=VALUE>' | expected metadata like `tenant=acme`"),
    ("list --meta =x", 2, "for '--meta <KEY=VALUE>' | expected metadata like `tenant=acme`"),
    ("list --key k --state ready", 2, "the argument '--key <KEY>' cannot be used with '--state <STATE>'"),
    ("list --key ''", 0, "no jobs with the key `` in the queue `default`"),
    ("list --key nokey", 0, "no jobs with the key `nokey` in the queue `default`"),
    ("list dead", 2, "unexpected argument 'dead' found"),
    ("list --json --queue nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("export --state daed", 2, "for '--state <STATE>' | `daed` is not a job state; expected blocked, scheduled, ready, running,"),
    ("export --queue nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("export --queue 'a b'", 2, "`a b` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("export --type nosuch", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("export --since 5", 2, "for '--since <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like `30s`,"),
    ("export --limit 5", 2, "unexpected argument '--limit' found"),
    ("export --json", 2, "unexpected argument '--json' found"),
    ("export --meta x", 2, "for '--meta <KEY=VALUE>' | expected metadata like `tenant=acme`"),
    ("export out.json", 2, "unexpected argument 'out.json' found"),
    ("export --since 1h --older-than 2h", 2, "no job can be of the last 1h and older than | `--since` must be longer than"),
    ("list --state completed --error x", 2, "`--error` applies to dead letters only, and `--state` is | omit one of the two"),
    ("list --type Do", 0, "no job of the type `Do` has ever been enqueued | did you mean `do`?"),
    ("export --error x --state ready", 2, "`--error` applies to dead letters only, and `--state` is ready | omit one of the two"),
];

pub(super) const FIGURES: &[Row] = &[
    ("stats --queue mail", 2, "unexpected argument '--queue' found"),
    ("stats mail", 2, "unexpected argument 'mail' found"),
    ("stats --exac", 2, "unexpected argument '--exac' found | a similar argument exists: '--exact'"),
    ("jobs --type x", 2, "unexpected argument '--type' found"),
    ("jobs x", 2, "unexpected argument 'x' found"),
    ("top", 2, "`top` needs a terminal | `test-cli stats --json` and `history` are for programs"),
    ("top --interval 5", 2, "unexpected argument '--interval' found"),
    ("history --last 5", 2, "for '--last <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like `30s`,"),
    ("history --last 0s", 2, "`--last` is 0s | it must be 10s to 30d"),
    ("history --last 5s", 2, "`--last` is 5s | it must be 10s to 30d"),
    ("history --last 40d", 2, "`--last` is 40d | it must be 10s to 30d"),
    ("history --last 10y", 2, "for '--last <DURATION>' | months and years differ in length; write days, as in `30d`"),
    ("list --since 2M", 2, "for '--since <DURATION>' | months and years differ in length; write days, as in `30d`"),
    ("history --last -1h", 2, "for '--last <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("history -5m", 2, "unexpected argument '-5' found | a number or a duration must follow its option, as in `--by 5m`"),
    ("history --step 5m", 2, "`--step` needs `--by time` | add `--by time`, or omit `--step`"),
    ("history --by hour", 2, "for '--by <BY>' | possible values: type, time"),
    ("history --by time --step 1s", 2, "`--step` is 1s | it must be 10s to 1h"),
    ("history --by time --step 0s", 2, "`--step` is 0s | it must be 10s to 1h"),
    ("history --by time --last 1h --step 2h", 2, "`--step` is 2h | it must be 10s to 1h"),
    ("history --queue nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("history --queue 'a b'", 2, "`a b` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("history --type nowhere", 0, "no job of the type `nowhere` has ever been enqueued | there are do, nosuchtype"),
    ("history --type 'a b'", 2, "`a b` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("history 1h", 2, "unexpected argument '1h' found"),
    ("stats --schema older", 1, "the schema `older` is at version 20, older | run `test-cli migrate --schema older`, or call"),
    ("stats --schema newer", 1, "the schema `newer` is at version 9999, which works | this one is older and knows"),
    ("stats --json --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("stats --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
    ("stats --log a=b=c", 2, "invalid log filter: error parsing | write it like `info` or `queue_worker=debug,sqlx="),
    ("stats --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("stats --all --queue x", 2, "unexpected argument '--queue' found"),
    ("jobs --log a=b=c", 2, "invalid log filter: error parsing | write it like `info` or `queue_worker=debug,sqlx="),
    ("jobs --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("jobs --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("jobs --jsn", 2, "unexpected argument '--jsn' found | a similar argument exists: '--json'"),
    ("jobs list", 2, "unexpected argument 'list' found"),
    ("jobs --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
    ("jobs --queue mail", 2, "unexpected argument '--queue' found"),
    ("top --json", 2, "unexpected argument '--json' found"),
    ("top --queue mail", 2, "unexpected argument '--queue' found"),
    ("top mail", 2, "unexpected argument 'mail' found"),
    ("top --log a=b=c", 2, "invalid log filter: error parsing | write it like `info` or `queue_worker=debug,sqlx=w"),
    ("top --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("top --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("top --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
    ("top --schema 'a b'", 2, "`top` needs a terminal | `test-cli stats --json` and `history` are for programs"),
    ("jobs --schema", 2, "a value is required for '--schema <NAME>' but none was supplied"),
    ("jobs --log", 2, "a value is required for '--log <FILTER>' but none"),
];

#[tokio::test]
async fn an_empty_list_names_the_reason() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, LIST);
    fixture.db.finish().await;
}

#[tokio::test]
async fn statistics_of_a_wrong_span_or_place_are_refused() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, FIGURES);
    fixture.db.finish().await;
}
