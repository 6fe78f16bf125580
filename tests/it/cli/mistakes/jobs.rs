//! Tests the CLI's error messages for commands that take a single job.

use super::{Fixture, Row};

pub(super) const SHOW: &[Row] = &[
    ("show", 2, "required arguments | <ID>"),
    ("show abc", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("show 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("show -1", 3, "there is no job -1 | it was never enqueued, was rolled back, or its history was pruned"),
    ("show 99999999999999999999", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("show {ready} {done}", 2, "unexpected argument '{done}' found"),
    ("show {ready} --payloads", 2, "unexpected argument '--payloads' found | a similar argument exists: '--payload'"),
    ("show one/{done}", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("why", 2, "required arguments | <ID>"),
    ("why abc", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("why 7", 3, "there is no job 7: no store generates such an id | fix: check that this is the database it was enqueued into"),
    ("why -- -1", 3, "there is no job -1: no store generates such an id | fix: check that this is the database it was enqueued into"),
    ("why {done} --jsn", 2, "unexpected argument '--jsn' found | a similar argument exists: '--json'"),
    ("try", 2, "required arguments | <ID>"),
    ("try x", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("try 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("try {run}", 3, "job {run} is running on a worker | wait until it finishes, or cancel it"),
    ("try {done}", 2, "the handler of `do` is not transactional, so its effects are not rolled | pass `--yes` to permit that"),
    ("try {ready} --within 5", 2, "for '--within <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like"),
    ("try {ready} --within 0s", 2, "the handler of `do` is not transactional, so its effects | pass `--yes` to permit that"),
    ("try {ready} --within -1s", 2, "for '--within <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("try {other}", 3, "no handler for job type `nosuchtype` in this binary | run `try` with the binary that has one"),
    ("try {ready}", 2, "the handler of `do` is not transactional, so its effects are not rolled | pass `--yes` to permit that"),
    ("why --payload {done}", 2, "unexpected argument '--payload' found"),
    ("why {done} {ready}", 2, "unexpected argument '{ready}' found"),
    ("why ''", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("why 99999999999999999999", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("why one/{done}", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("why {done} --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("show ''", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("show {done} --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or"),
    ("try {done} --yes --within soon", 2, "for '--within <DURATION>' | expected number at 0; write a duration like `30s`, `5m` or"),
    ("try {done} --yes --state", 2, "unexpected argument '--state' found"),
    ("try {done} {ready}", 2, "unexpected argument '{ready}' found"),
    ("try {done} --yes --within -5s", 2, "for '--within <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("try #{ready} --no", 2, "unexpected argument '--no' found"),
];

pub(super) const FOLLOW: &[Row] = &[
    ("tail x", 2, "for '[ID]' | expected a job id, a number as shown by `list`"),
    ("tail 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("tail {ready} --queue default", 2, "the argument '[ID]' cannot be used with '--queue <QUEUE>'"),
    ("tail -n -1", 2, "for '--lines <N>' | expected a whole number from 0 to 65535"),
    ("tail -n 70000", 2, "for '--lines <N>' | expected a whole number from 0 to 65535"),
    ("tail -n ten", 2, "for '--lines <N>' | expected a whole number from 0 to 65535"),
    ("tail --state dead", 2, "unexpected argument '--state' found"),
    ("tail --meta x", 2, "for '--meta <KEY=VALUE>' | expected metadata like `tenant=acme`"),
    ("tail --type 'a b' -n 0", 2, "`a b` is not a valid job type name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("flow", 2, "required arguments | <ID>"),
    ("flow x", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("flow 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("flow {ready}", 3, "job {ready} belongs to no flow | `test-cli show {ready}` shows the job itself"),
    ("flow {ready} --cancel", 3, "job {ready} belongs to no flow | `test-cli show {ready}` shows the job itself"),
    ("flow {ready} --cancel --mermaid", 2, "the argument '--cancel' cannot be used with '--mermaid'"),
    ("flow 7 --cancel", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("flow {ready} --json --tree", 2, "unexpected argument '--tree' found"),
    ("signal", 2, "required arguments | <ID> | <NAME>"),
    ("signal {ready}", 2, "required arguments | <NAME>"),
    ("signal x paid", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("signal 7 paid", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("signal {done} paid", 3, "job {done} is finished and receives no signals | `test-cli show {done}` shows how it ended"),
    ("signal {ready} paid", 3, "job {ready} is of the type `do`, which is not durable | signal a job whose type has `#[job(durable)]`"),
    ("signal {other} paid", 0, "sent paid to {other}"),
    ("signal {ready} ''", 2, "the name of a signal is empty | it must be 1 to 200 bytes without control characters"),
    ("signal {ready} paid --payload yes", 2, "the payload is not JSON, at line 1, | write a string in double quotes, as in"),
    ("signal {ready} paid --payload '{'", 2, "the payload is not JSON, at line 1, | write a string in double quotes, as in"),
    ("signal {ready} paid --payload @nofile", 2, "the payload file nofile cannot be read: No such file or directory (os"),
    ("signal {ready} paid --payload ''", 2, "the payload is empty | write a string in double quotes"),
    ("signal {ready} paid --payload @.", 2, "the payload file . cannot be read: Is a directory (os error 21)"),
    ("signal {ready} paid --payload -", 2, "the payload is empty | write a string in double quotes"),
    ("signal {ready} paid extra", 2, "unexpected argument 'extra' found"),
    ("tail {done} --type do", 2, "the argument '[ID]' cannot be used with '--type <TYPE>'"),
    ("tail -n 5 --queue nowhere 7", 2, "the argument '--queue <QUEUE>' cannot be used with '[ID]'"),
    ("tail {done} --since 5m", 2, "unexpected argument '--since' found | a similar argument exists: '--lines'"),
    ("flow one/{done}", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("flow ''", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
    ("flow {done} --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or"),
    ("flow {ready} --yes", 2, "unexpected argument '--yes' found"),
    ("signal 7 paid --payload 1", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("signal {ready} paid --json --payload '{\"by\": }'", 2, "the payload is not JSON, at line | write a string in double quotes, as in"),
    ("signal {done} 'a\tb'", 2, "the name of a signal is a\\tb | it must be 1 to 200 bytes without control characters"),
    ("flow {ready} --mermaid --json", 3, "job {ready} belongs to no flow | `test-cli show {ready}` shows the job itself"),
    ("flow 99999999999999999999", 2, "for '<ID>' | expected a job id, a number as shown by `list`"),
];

pub(super) const ENQUEUE: &[Row] = &[
    ("enqueue", 2, "required arguments | <TYPE> | <JSON>"),
    ("enqueue do", 2, "required arguments | <JSON>"),
    ("enqueue do ''", 2, "the payload is empty | write a string in double quotes"),
    ("enqueue do '{\"secret\":'", 2, "the payload is not JSON, at line 1, column 10 | write a string in double quotes, as in"),
    ("enqueue do yes", 2, "the payload is not JSON, at line 1, column 1"),
    ("enqueue do @nofile", 2, "the payload file nofile cannot be read: No such file or directory (os"),
    ("enqueue do -", 2, "the payload is empty"),
    ("enqueue do {} --options []", 2, "the value of --options is no JSON object | give a JSON object, as in"),
    ("enqueue do {} --options later", 2, "the value of --options is not JSON, at line 1, column 1 | give a JSON object"),
    ("enqueue do {} --options '{\"system\": {}}'", 2, "an option of the enqueue is system"),
    ("enqueue do {} --options '{\"queue\": \"nosuch\"}'", 0, "enqueued job | no job has ever been enqueued into the queue `nosuch`"),
    ("enqueue do {} --options '{\"colour\": 1}'", 2, "unknown option \"colour\" | the options are queue, priority, max_attempts"),
    ("enqueue do {} --options '{\"priority\": \"high\"}'", 2, "priority"),
    ("enqueue do {} --options '{\"after\": \"soon\"}'", 2, "soon"),
    ("enqueue do {} --options '{\"run_at\": \"0001-01-01\"}'", 2, "run_at must be a time, within the years 1970 to 9999"),
    ("enqueue do {} --queue mail", 2, "unexpected argument '--queue' found"),
    ("enqueue 'd o' {}", 2, "job type name"),
    ("enqueue doo {}", 2, "no job of the type `doo` has ever been enqueued, and this binary does not have it | did you mean `do`?"),
    ("enqueue send_male {}", 2, "no job of the type `send_male` has ever been enqueued | `--new-type` enqueues it anyway"),
    ("enqueue send_male {} --new-type", 0, "enqueued job"),
];

#[tokio::test]
async fn an_enqueue_by_hand_checks_its_json() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ENQUEUE);
    fixture.db.finish().await;
}

#[tokio::test]
async fn commands_that_show_a_job_take_its_id() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, SHOW);
    fixture.db.finish().await;
}

#[tokio::test]
async fn commands_that_follow_or_signal_a_job_take_its_id() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, FOLLOW);
    fixture.db.finish().await;
}
