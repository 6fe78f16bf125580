//! Tests the CLI's error messages for `run`, `dashboard`, `completions`, `man` and unknown commands.

use super::{Fixture, Row};

pub(super) const RUN: &[Row] = &[
    ("run --queue", 2, "a value is required for '--queue <NAME[=CONCURRENCY]>' but none was supplied"),
    ("run --queue mail=", 2, "for '--queue <NAME[=CONCURRENCY]>' | after the `=`: expected a whole number from 1 to 10000; write"),
    ("run --queue mail=many", 2, "for '--queue <NAME[=CONCURRENCY]>' | after the `=`: expected a whole number from 1 to 10000;"),
    ("run --queue mail=-1", 2, "for '--queue <NAME[=CONCURRENCY]>' | after the `=`: expected a whole number from 1 to 10000; write"),
    ("run --queue mail=99999999999999999999", 2, "for '--queue <NAME[=CONCURRENCY]>' | after the `=`: expected a whole number from"),
    ("run --queue mail,mail", 2, "queue is `mail` twice | it must be a name that appears once"),
    ("run --queue mail=0", 2, "for '--queue <NAME[=CONCURRENCY]>' | after the `=`: expected a whole number from 1 to 10000; write"),
    ("run --queue 'a b'", 2, "for '--queue <NAME[=CONCURRENCY]>' | `a b` is not a valid queue name: 1 to 64 of the characters A-Z"),
    ("run --queue m'\"'ail", 2, "for '--queue <NAME[=CONCURRENCY]>' | `m\\\"ail` is not a valid queue name: 1 to 64 of the characters"),
    ("run --concurrency 0", 2, "concurrency is 0 | it must be 1 to 10000"),
    ("run --concurrency -1", 2, "for '--concurrency <N>' | expected a whole number within range, such as 20"),
    ("run --concurrency 1.5", 2, "for '--concurrency <N>' | expected a whole number within range, such as 20"),
    ("run --concurrency 99999999999999999999", 2, "for '--concurrency <N>' | expected a whole number within range, such as 20"),
    ("run --lease-ttl 5", 2, "for '--lease-ttl <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like"),
    ("run --lease-ttl '5 minute s'", 2, "for '--lease-ttl <DURATION>' | expected number at 9; write a duration like `30s`, `5m` or"),
    ("run --lease-ttl 1ms", 2, "lease_ttl is 1ms | it must be 1s to 1d"),
    ("run --grace 5minuts", 2, "for '--grace <DURATION>' | there is no unit `minuts`"),
    ("run --grace 999999999999999999999d", 2, "for '--grace <DURATION>' | number is too large or cannot be represented without a"),
    ("run --poll-interval 0s", 2, "poll_interval is 0s | it must be 10ms to 1h"),
    ("run --retention forever", 2, "for '--retention <DURATION>' | expected number at 0; write a duration like `30s`, `5m` or `1h"),
    ("run --retention 1y", 2, "for '--retention <DURATION>' | months and years differ in length; write days, as in `30d`"),
    ("run --retention -1d", 2, "for '--retention <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("run --pool-size 0", 2, "pool_size is 0 | it must be 1 to 10000"),
    ("run --pool-size x", 2, "for '--pool-size <N>' | expected a whole number within range, such as 20"),
    ("run --relaxed=yes", 2, "for '--relaxed[=<true|false>]' | possible values: true, false"),
    ("run --relaxed yes", 2, "unexpected argument 'yes' found"),
    ("run --migrate=1", 2, "for '--migrate[=<true|false>]' | possible values: true, false"),
    ("run --on-standby no", 2, "for '--on-standby <wait|exit>' | possible values: wait, exit"),
    ("run --health 127.0.0.1", 2, "for '--health <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for every"),
    ("run --health localhost:8080", 2, "for '--health <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for"),
    ("run --dashboard 7070", 2, "for '--dashboard <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for every"),
    (
        "run --dashboard 0.0.0.0:0",
        2,
        "0.0.0.0:0 is reachable by others, so the dashboard requires | set QUEUE_DASHBOARD_TOKEN, or listen on",
    ),
    ("run --dashboard-token short --dashboard 127.0.0.1:0", 2, "dashboard_token is too short | it must be at least 16 characters"),
    ("run --log 'queue_worker=loud'", 2, "invalid log filter: error parsing level filter: | write it like `info` or"),
    ("run --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("run mail", 2, "unexpected argument 'mail' found"),
    ("run --queues mail", 2, "unexpected argument '--queues' found | a similar argument exists: '--queue'"),
    ("run --name ''", 2, "the length of name is 0 | it must be 1 to 200"),
    ("run --schema Nowhere", 1, "the schema `Nowhere` holds no job queue | run `test-cli migrate --schema Nowhere`, or call"),
    ("run --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("dashboard --addr 7070", 2, "for '--addr <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for every"),
    ("dashboard --addr localhost:7070", 2, "for '--addr <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for"),
    ("dashboard --addr 0.0.0.0:0", 2, "0.0.0.0:0 is reachable by others, so the | set QUEUE_DASHBOARD_TOKEN, or listen on"),
    ("dashboard --addr 8.8.8.8:7070", 2, "8.8.8.8:7070 is reachable by others, so | set QUEUE_DASHBOARD_TOKEN, or listen on"),
    ("dashboard --addr 127.0.0.1:99999", 2, "for '--addr <ADDR>' | expected an address like `127.0.0.1:8080`, or `[::]:8080` for"),
    ("dashboard --dashboard-token short", 2, "dashboard_token is too short | it must be at least 16 characters"),
    ("dashboard --dashboard-host 'http://x/'", 2, "dashboard_host is `http://x/` | it must be a name such as `queue.example.com`"),
    ("dashboard --dashboard-read-only=maybe", 2, "for '--dashboard-read-only[=<true|false>]' | possible values: true, false"),
    ("dashboard --port 7070", 2, "unexpected argument '--port' found"),
    ("dashboard --schema nowhere", 1, "the schema `nowhere` holds no job queue | run `test-cli migrate --schema nowhere`, or call"),
    ("dashboard --addr {taken}", 1, "the dashboard cannot listen on {taken}: | set another address, or port 0 for any free"),
    ("dashboard --database-url {refused}", 1, "cannot connect to the database `d` at 127.0.0.1:1: the database is unreachable:"),
];

pub(super) const HELP: &[Row] = &[
    ("completions", 2, "required arguments | <SHELL>"),
    ("completions tcsh", 2, "for '<SHELL>' | possible values: bash, elvish, fish, powershell, zsh | a similar value exists: 'zsh'"),
    ("completions bash --json", 2, "unexpected argument '--json' found"),
    ("man x", 2, "unexpected argument 'x' found"),
    ("man --dir /proc/x", 1, "cannot write the pages to /proc/x: No such file or directory (os error 2)"),
    ("help frobnicate", 2, "unrecognized subcommand 'frobnicate'"),
    ("frobnicate", 2, "unrecognized subcommand 'frobnicate'"),
    ("lst", 2, "unrecognized subcommand 'lst' | a similar subcommand exists: 'list'"),
    ("--schema queue", 2, "'test-cli' requires a subcommand but one was not | subcommands: run, dashboard, migrate, roles, jobs,"),
    ("completions bsh", 2, "for '<SHELL>' | possible values: bash, elvish, fish, powershell, zsh | a similar value exists: 'bash'"),
    ("completions BASH", 2, "for '<SHELL>' | possible values: bash, elvish, fish, powershell, zsh"),
    ("completions bash zsh", 2, "unexpected argument 'zsh' found"),
    ("completions --shell bash", 2, "unexpected argument '--shell' found | a similar argument exists: '--help'"),
    ("completions ''", 2, "a value is required for '<SHELL>' but none was | possible values: bash, elvish, fish, powershell,"),
    ("completions bash --dir x", 2, "unexpected argument '--dir' found | a similar argument exists: '--direct-url'"),
    ("completions bash --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("completions bash --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("man --dir", 2, "a value is required for '--dir <FOLDER>' but none was supplied"),
    ("man --dir ''", 2, "a value is required for '--dir <FOLDER>' but none was supplied"),
    ("man --output x", 2, "unexpected argument '--output' found"),
    ("man list", 2, "unexpected argument 'list' found"),
    ("man --json", 2, "unexpected argument '--json' found"),
    ("man --dir /proc/x --log a=b=c", 2, "invalid log filter: error parsing level filter: | write it like `info` or"),
    ("man --config nofile.toml", 2, "cannot read the settings file nofile.toml: No such file or directory (os error 2)"),
    ("man --log-format xml", 2, "for '--log-format <FORMAT>' | possible values: text, json"),
    ("man --embedded=maybe", 2, "for '--embedded[=<true|false>]' | possible values: true, false"),
];

#[tokio::test]
async fn a_wrong_configuration_does_not_start() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, RUN);
    fixture.db.finish().await;
}

#[tokio::test]
async fn commands_that_print_texts_list_the_choices() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, HELP);
    fixture.db.finish().await;
}
