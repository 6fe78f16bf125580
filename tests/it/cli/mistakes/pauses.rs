//! Tests the CLI's error messages for pauses, capacities and weights.

use super::{Fixture, Row};

pub(super) const PAUSES: &[Row] = &[
    ("pause", 2, "no scope is given | give `--queue NAME`, `--type NAME` or `--all`"),
    ("pause mail", 2, "unexpected argument 'mail' found"),
    ("pause --queue", 2, "a value is required for '--queue <QUEUE>' but none was supplied"),
    ("pause --queue nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("pause --queue 'a b'", 2, "`a b` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("pause --queue default", 0, "paused queue default"),
    ("pause --queue default", 0, "paused queue default"),
    ("pause --queue default --reason ''", 0, "paused queue default"),
    ("pause --all --queue default", 2, "the argument '--all' cannot be used with '--queue <QUEUE>'"),
    ("pause --type nosuch", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("pause --type 'x y'", 2, "`x y` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("pause --queue default --reason {long}", 2, "the reason of a pause is 1100 | it must be at most 1000 characters without NUL"),
    ("pause --queue default --for 5m", 2, "unexpected argument '--for' found"),
    ("resume", 2, "no scope is given | give `--queue NAME`, `--type NAME` or `--all`"),
    ("resume --queue nowhere", 0, "resumed queue nowhere"),
    ("resume --queue 'a b'", 2, "`a b` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("resume --queue default", 0, "resumed queue default"),
    ("resume --queue default", 3, "queue default: not paused | paused: type nosuch"),
    ("resume --queue nowhere", 3, "queue nowhere: not paused | paused: type nosuch"),
    ("resume --type nosuch", 0, "resumed type nosuch"),
    ("resume --all", 3, "everything: not paused | nothing is paused; `test-cli pauses` shows what is"),
    ("resume --all --type do", 2, "the argument '--all' cannot be used with '--type <TYPE>'"),
    ("resume default", 2, "unexpected argument 'default' found"),
    ("pauses --queue x", 2, "unexpected argument '--queue' found"),
    ("pauses x", 2, "unexpected argument 'x' found"),
    ("resume --queue", 2, "a value is required for '--queue <QUEUE>' but none was supplied"),
    ("resume --type 'x y'", 2, "`x y` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("resume --queue default --reason done", 2, "unexpected argument '--reason' found | a similar argument exists: '--version'"),
    ("resume --schema nowhere", 2, "no scope is given | give `--queue NAME`, `--type NAME` or `--all`"),
    ("pauses --jsn", 2, "unexpected argument '--jsn' found | a similar argument exists: '--json'"),
    ("pauses --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("pauses --schema 'a b'", 2, "`a b` is not a valid schema name: 1 to 48 of the characters A-Z a-z 0-9 _ . : -"),
    ("pauses --log a=b=c", 2, "invalid log filter: error parsing | write it like `info` or `queue_worker=debug,sqlx"),
    ("pauses --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("pauses --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("pauses --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
    ("pauses --all", 2, "unexpected argument '--all' found"),
    ("pauses --schema older", 1, "the schema `older` is at version 20, older | run `test-cli migrate --schema older`, or call"),
];

pub(super) const SHARES: &[Row] = &[
    ("capacity nowhere", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("capacity 'a b'", 2, "`a b` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("capacity default x", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default -1", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default 1.5", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default 10k", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default 99999999999999999999", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default 9223372036854775808", 2, "the capacity is 9223372036854775808 | it must be at most 281474976710656 jobs"),
    ("capacity default unlimited", 2, "for '[N|none]' | expected a number of jobs, or `none`"),
    ("capacity default none", 0, "the queue default has no capacity"),
    ("capacity 100", 0, "no job has ever been enqueued into the queue `100` | there are default, slow"),
    ("capacity default 5 6", 2, "unexpected argument '6' found"),
    ("capacity --queue default 5", 2, "unexpected argument '--queue' found"),
    ("weight do acme 0", 2, "for '[N|none]' | expected a number from 1 to 1000, or `none`"),
    ("weight do acme 1001", 2, "for '[N|none]' | expected a number from 1 to 1000, or `none`"),
    ("weight do acme -1", 2, "for '[N|none]' | expected a number from 1 to 1000, or `none`"),
    ("weight do acme 1.5", 2, "for '[N|none]' | expected a number from 1 to 1000, or `none`"),
    ("weight do acme heavy", 2, "for '[N|none]' | expected a number from 1 to 1000, or `none`"),
    ("weight do acme none", 0, "the fair key acme of the type do has as many turns as any other"),
    ("weight 'a b' acme 3", 2, "`a b` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("weight do acme", 0, "the fair key acme of the type do has as many turns as any other"),
    ("weight nosuch", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("weight do 3", 0, "the fair key 3 of the type do has as many turns as any other"),
    ("weight --type do acme 3", 2, "unexpected argument '--type' found"),
    ("capacity nowhere 5", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("weight nosuch acme 3", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("weight nosuch", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
];

#[tokio::test]
async fn a_pause_names_its_scope() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, PAUSES);
    fixture.db.finish().await;
}

#[tokio::test]
async fn a_capacity_and_a_weight_name_their_range() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, SHARES);
    fixture.db.finish().await;
}
