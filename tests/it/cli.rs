//! Tests the command line in separate processes: exit codes, and output, which must contain neither passwords nor control characters.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use queue_core::{Job as _, JobId, JobState};
use serde_json::Value;
use tests::{Act, Do, TestDb, eventually};

mod confirmations;
mod conformance;
mod control;
mod enqueue;
mod flow;
mod history;
mod logs;
mod mistakes;
mod audit;
mod rare;
mod schedules;
mod settings;
mod signal;
mod tail;
mod stores;
mod waits;

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");
const EMPTY: &str = env!("CARGO_BIN_EXE_test-empty-cli");

/// Creates a command that runs in a temporary folder and inherits only `PATH`, `HOME` and `QUEUE_PG_BIN`.
fn command(binary: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    let kept = ["PATH", "HOME", "QUEUE_PG_BIN"].map(|name| (name, std::env::var_os(name)));
    command.args(arguments).env_clear().envs(kept.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(folder()).stdin(Stdio::null());
    command
}

/// Returns the temporary folder of the CLI tests. Creates the folder if it does not exist.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn on(db: &TestDb, arguments: &[&str]) -> Output {
    command(CLI, arguments).env("DATABASE_URL", &db.url).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(db: &TestDb, arguments: &[&str]) -> Value {
    let output = on(db, &[arguments, &["--json"]].concat());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", text(&output.stdout)))
}

/// Returns the exit code and stderr of a command that must print nothing to stdout.
fn failed(output: &Output) -> (Option<i32>, String) {
    assert_eq!(text(&output.stdout), "", "an error is no output");
    (output.status.code(), text(&output.stderr).to_owned())
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

#[tokio::test]
#[ignore = "deep"]
async fn every_command_prints_one_json_document_on_request() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Terminal("no way".into())).await];
    db.run_until_idle(db.worker()).await;
    let (waiting, dead) = (enqueue(&db, Act::Panic).await.to_string(), jobs[1].to_string());
    assert_eq!(json(&db, &["migrate"])["applied"], serde_json::json!([]));
    assert_eq!(json(&db, &["migrate", "status"])["migrations"][0]["version"], 1);
    assert!(json(&db, &["migrate", "print"])["sql"].as_str().unwrap().contains("create table queue.job"));
    let types = json(&db, &["jobs"]);
    let known = types.as_array().unwrap().iter().find(|known| known["name"] == "do").unwrap();
    assert_eq!((&known["max_attempts"], &known["timeout_ms"], &known["backoff_ms"][2]), (&3.into(), &5000.into(), &50.into()));
    let stats = json(&db, &["stats"]);
    assert_eq!(stats["counts"].as_array().unwrap().len(), 3, "{stats}");
    assert_eq!(stats["oldest"][0]["queue"], "default");
    let list = json(&db, &["list"]);
    assert_eq!((&list["jobs"][0]["id"], &list["jobs"][0]["state"]), (&Value::from(waiting.as_str()), &"ready".into()), "{list}");
    assert_eq!(json(&db, &["list", "--state", "dead", "--queue", "default", "--type", "do"])["jobs"].as_array().unwrap().len(), 1);
    let shown = json(&db, &["show", &dead]);
    assert_eq!(
        (&shown["error"], &shown["failures"][0]["attempt"], &shown["payload"]),
        (&"no way".into(), &1.into(), &Value::Null),
        "{shown}"
    );
    assert_eq!(json(&db, &["show", &dead, "--payload"])["payload"]["act"]["Terminal"], "no way");
    assert_eq!(json(&db, &["requeue", &dead])["requeued"], serde_json::json!([dead]));
    assert_eq!(json(&db, &["cancel", &dead, &waiting])["cancelled"], serde_json::json!([dead, waiting]));
    assert_eq!(json(&db, &["discard", "--all", "--yes"]), serde_json::json!({ "discarded": 0, "cancelling": 0 }));
    assert_eq!(json(&db, &["requeue", "--all"]), serde_json::json!({ "requeued": 0, "cancelling": 0 }));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn for_people_it_prints_tables_and_sentences() {
    let db = TestDb::new().await;
    let dead = enqueue(&db, Act::Terminal("no way".into())).await;
    db.run_until_idle(db.worker()).await;
    let dead = dead.to_string();
    for (arguments, expected) in [
        (vec!["migrate"], "up to date"),
        (vec!["migrate", "status"], "VERSION"),
        (vec!["jobs"], "tests::act::Do"),
        (vec!["stats"], "DEAD"),
        (vec!["list"], "no way"),
        (vec!["show", &dead], "no way"),
        (vec!["requeue", &dead], "requeued"),
        (vec!["cancel", &dead], "cancelled"),
        (vec!["discard", "--all", "--yes"], "discarded 0 jobs"),
        (vec!["capacity", "mail", "7"], "CAPACITY"),
        (vec!["capacity", "--json"], "\"waiting\": 0"),
        (vec!["capacity", "mail", "none"], "the queue mail has no capacity"),
        (vec!["--help"], "Exit codes"),
        (vec!["requeue", "--help"], "  test-cli requeue 187"),
        (vec!["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = on(&db, &arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(expected), "{arguments:?}: {}", text(&output.stdout));
    }
    db.finish().await;
}

#[tokio::test]
async fn exit_codes_distinguish_failure_usage_and_refusal() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    db.run_until_idle(db.worker()).await;
    let id = job.to_string();
    for (arguments, code, expected) in [
        (vec!["stats", "--database-url", "postgres://u@127.0.0.1:1/d"], 1, "127.0.0.1:1"),
        (vec!["stats", "--schema", "nowhere"], 1, "test-cli migrate"),
        (vec!["run", "--schema", "nowhere"], 1, "test-cli migrate"),
        (vec!["stats", "--nonsense"], 2, "--nonsense"),
        (vec!["frobnicate"], 2, "frobnicate"),
        (vec![], 2, "Usage"),
        (vec!["show", "x"], 2, "number"),
        (vec!["requeue"], 2, "no jobs are selected"),
        (vec!["requeue", "--type", "do"], 2, "add `--all`"),
        (vec!["requeue", "--all", "--state", "completed", "--yes"], 2, "by their ids"),
        (vec!["requeue", "--rate", "5/s"], 2, "add `--all`"),
        (vec!["list", "--limit", "x"], 2, "expected a whole number"),
        (vec!["list", "--limit", "0"], 2, "from 1 to"),
        (vec!["priority", "7", "--to", "high"], 2, "from -32768 to 32767"),
        (vec!["run", "--concurrency", "x"], 2, "expected a whole number"),
        (vec!["run", "--lease-ttl", "0s"], 2, "lease_ttl is 0s"),
        (vec!["run", "--health", "8080"], 2, "expected an address like"),
        (vec!["dashboard", "--addr", "localhost:7070"], 2, "expected an address like"),
        (vec!["cron", "add", "x", "--type", "do"], 2, "give `--cron EXPRESSION` or `--every DURATION`"),
        (vec!["cron", "next"], 2, "name a schedule"),
        (vec!["limits", "set", "queue:x"], 2, "give `--concurrency`, `--rate` or both"),
        (vec!["signal", "7", "paid", "--payload", "@nofile"], 2, "nofile"),
        (vec!["pause"], 2, "give `--queue NAME`, `--type NAME` or `--all`"),
        (vec!["resume", "--json"], 2, "give `--queue NAME`, `--type NAME` or `--all`"),
        (vec!["cron", "add", "x", "--type", "do", "--every", "1h", "--tz", "UTC"], 2, "--tz"),
        (vec!["cron", "next", "--every", "1h", "--tz", "UTC"], 2, "--tz"),
        (vec!["stats", "--schema", "pg_x"], 2, "PostgreSQL's own"),
        (vec!["run", "--retention", "101d"], 2, "retention is 101d"),
        (vec!["run", "--poll-interval", "1500m"], 2, "poll_interval is 25h"),
        (vec!["requeue", "1", "--all"], 2, "--all"),
        (vec!["stats", "--schema", "a\"b"], 2, "schema"),
        (vec!["list", "--queue", "a b"], 2, "queue"),
        (vec!["list", "--state", "asleep"], 2, "asleep"),
        (vec!["stats", "--database-url", "nonsense"], 2, "postgres://"),
        (vec!["run", "--log", "a=b=c"], 2, "log"),
        (vec!["run", "--lease-ttl", "0s"], 2, "lease_ttl"),
        (vec!["run", "--grace", "-1s"], 2, "write one like `30s`"),
        (vec!["run", "--queue", "mail=0"], 2, "from 1 to 10000"),
        (vec!["show", "7"], 3, "no job 7"),
        (vec!["discard", &id], 3, "is completed"),
        (vec!["cancel", &id], 3, "is completed"),
    ] {
        let (ended, message) = failed(&on(&db, &arguments));
        assert_eq!(ended, Some(code), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    let fresh = on(&db, &["migrate", "--schema", "fresh"]);
    assert!(text(&fresh.stdout).contains(&format!("; applied 1 to {}", queue_core::migrate::LATEST)), "{}", text(&fresh.stdout));
    let some = on(&db, &["requeue", &id, "7", "--json"]);
    assert_eq!(some.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&some.stdout).unwrap();
    assert_eq!((&document["requeued"][0], &document["refused"][0]["id"]), (&Value::from(id), &"7".into()), "the others are not held up");
    db.finish().await;
}

#[test]
fn f65_a_wrong_settings_file_is_answered_with_the_path_of_the_key() {
    let path = folder().join("wrong.toml");
    for (file, expected) in [
        ("[worker]\nlease_tll = '5s'", "worker.lease_tll"),
        ("[worker]\nlease_ttl = '-5s'", "worker.lease_ttl"),
        ("[worker]\nqueues = ['a', 'b', 'c=many']", "worker.queues[2]"),
        ("database_url = 'postgres://u:swordfish@h/d", "wrong.toml:1"),
        ("[worker]\nconcurrency = 0", "concurrency"),
        ("schema = 'x y'", "schema"),
    ] {
        std::fs::write(&path, file).unwrap();
        let (code, message) = failed(&command(CLI, &["run", "--config", path.to_str().unwrap()]).output().unwrap());
        assert_eq!(code, Some(2), "{file}: {message}");
        assert!(message.contains(expected) && !message.contains("swordfish"), "{file}: {message}");
    }
    let (code, message) = failed(&command(CLI, &["stats", "--config", "absent.toml"]).output().unwrap());
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("absent.toml"), "{message}");
}

#[test]
fn f64_a_password_is_never_printed() {
    let wrong =
        ["postgres://u:swordfish@127.0.0.1:1/d", "postgres://u:swordfish@h:port/d", "u:swordfish@h/d", "postgres://u:sword/fish@h/d?x=y"];
    let file = folder().join("secret.toml");
    for url in wrong {
        std::fs::write(&file, format!("database_url = '{url}'\n")).unwrap();
        for arguments in [
            &["stats"][..],
            &["run"],
            &["run", "--grace", "x"],
            &["stats", "--help"],
            &["migrate", "--log", "trace"],
            &["list", "--nonsense"],
        ] {
            let by_variable = command(CLI, arguments).env("DATABASE_URL", url).env("QUEUE_LOG", "trace").output().unwrap();
            let by_file = command(CLI, arguments).env("QUEUE_CONFIG", &file).env("RUST_LOG", "trace").output().unwrap();
            for output in [by_variable, by_file] {
                let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
                assert!(
                    !printed.contains("swordfish") && !printed.contains("sword/fish") && !printed.contains("fish@"),
                    "{arguments:?} {url}: {printed}"
                );
            }
        }
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f62_control_characters_in_errors_and_payloads_are_inert() {
    const HOSTILE: &str = "red\u{1b}[31m\u{7}\u{9b}2J\rover\u{202e}desrever <script> =1+1";
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Terminal(HOSTILE.into())).await;
    db.run_until_idle(db.worker()).await;
    let id = job.to_string();
    for arguments in
        [vec!["list"], vec!["show", &id], vec!["show", &id, "--payload"], vec!["list", "--json"], vec!["show", &id, "--payload", "--json"]]
    {
        let output = on(&db, &arguments);
        let shown = text(&output.stdout);
        assert!(
            shown.contains("red") && !shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{arguments:?}: {shown:?}"
        );
    }
    let document = json(&db, &["show", &id, "--payload"]);
    assert_eq!(
        (&document["error"], &document["payload"]["act"]["Terminal"]),
        (&HOSTILE.into(), &HOSTILE.into()),
        "the same text all the same"
    );
    let message = failed(&on(&db, &["list", "--type", HOSTILE])).1;
    assert!(!message.contains(|c: char| c.is_control() && c != '\n'), "{message:?}");
    db.finish().await;
}

#[test]
fn f27_a_worker_without_job_types_names_the_fix_and_starts_no_database() {
    let data = folder().join("no-database");
    let (code, message) = failed(&command(EMPTY, &["run"]).env("QUEUE_PG_DATA", &data).output().unwrap());
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("use my_app as _;") && message.contains("queue_worker::main!(my_app)"), "{message}");
    assert!(!data.exists());
    let listed = command(EMPTY, &["jobs", "--json"]).output().unwrap();
    assert_eq!((listed.status.code(), text(&listed.stdout).trim()), (Some(0), "[]"));
}

/// Running CLI process, killed when dropped.
struct RunningCommand(Child);

impl RunningCommand {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn terminate(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn run_runs_the_jobs_of_the_named_crates_until_a_signal() {
    let db = TestDb::new().await;
    let served = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).queue("mail").await.unwrap().id();
    let other = enqueue(&db, Act::Ok("x".into())).await;
    let mut run = command(CLI, &["run", "--migrate", "--log-format", "json"]);
    run.envs([("DATABASE_URL", db.url.as_str()), ("QUEUE_QUEUES", "mail=3,nosuch"), ("QUEUE_NAME", "postman"), ("QUEUE_GRACE", "1s")]);
    let mut worker = RunningCommand::start(run.stderr(Stdio::piped()));
    db.until(served, JobState::Completed).await;
    let announced: (String, Vec<String>) = sqlx::query_as("select name, queues from queue.worker").fetch_one(&db.pool).await.unwrap();
    assert_eq!(announced, ("postman".to_owned(), vec!["mail".to_owned(), "nosuch".to_owned()]));
    assert_eq!(worker.terminate(), Some(0));
    assert_eq!(db.state(other).await, Some(JobState::Ready));
    assert_eq!(db.count("select count(*) from queue.worker").await, 0);
    let mut log = String::new();
    worker.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    for line in log.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    let unused: Vec<&str> = log.lines().filter(|line| line.contains("gets no jobs")).collect();
    assert!(unused.len() == 1 && unused[0].contains("\"nosuch\"") && unused[0].contains("default"), "{log}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f54_a_worker_survives_closed_outputs_and_few_file_descriptors() {
    let db = TestDb::new().await;
    let mut few = command("sh", &["-c", "ulimit -n 64; exec \"$0\" run", CLI]);
    let mut deaf = command(CLI, &["run"]);
    let mut shut = command("sh", &["-c", "exec \"$0\" run >&- 2>&-", CLI]);
    for command in [few.stdout(Stdio::null()).stderr(Stdio::null()), deaf.stdout(Stdio::piped()).stderr(Stdio::piped()), &mut shut] {
        let jobs = [enqueue(&db, Act::FailUntil(2)).await, enqueue(&db, Act::Ok("x".into())).await, enqueue(&db, Act::Panic).await];
        let mut worker = RunningCommand::start(command.env("DATABASE_URL", &db.url).env("QUEUE_LOG", "trace"));
        drop((worker.0.stdout.take(), worker.0.stderr.take()));
        db.until(jobs[0], JobState::Completed).await;
        db.until(jobs[1], JobState::Completed).await;
        db.until(jobs[2], JobState::Dead).await;
        assert_eq!(worker.terminate(), Some(0));
    }
    db.finish().await;
}

#[tokio::test]
async fn f54_a_reader_that_has_seen_enough_is_no_failure_and_a_full_disk_is() {
    let db = TestDb::new().await;
    let mut enough = RunningCommand::start(command(CLI, &["migrate", "print"]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    drop(enough.0.stdout.take());
    assert_eq!(enough.0.wait().unwrap().code(), Some(0));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(CLI, &["list", "--json"]).env("DATABASE_URL", &db.url).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("stdout"), "{}", text(&output.stderr));
    db.finish().await;
}

#[tokio::test]
async fn f63_a_limit_without_bounds_is_clamped() {
    let db = TestDb::new().await;
    sqlx::query("select queue.enqueue('do', '{}') from generate_series(1, 1100)").execute(&db.pool).await.unwrap();
    let page = json(&db, &["list", "--limit", "1000000000"]);
    assert_eq!(page["jobs"].as_array().unwrap().len(), 1000);
    let rest = json(&db, &["list", "--limit", "4294967295", "--before", page["next"].as_str().unwrap()]);
    assert_eq!((rest["jobs"].as_array().unwrap().len(), &rest["next"]), (100, &Value::Null));
    let output = on(&db, &["list", "--limit", "1001"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("a list has at most 1000 jobs"), "{output:?}");
    for wrong in ["1e9", "0"] {
        assert_eq!(failed(&on(&db, &["list", "--limit", wrong])).0, Some(2), "{wrong}");
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_second_signal_ends_a_worker_immediately() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Block(600_000)).await;
    let mut worker = RunningCommand::start(command(CLI, &["run", "--lease-ttl", "1m"]).env("DATABASE_URL", &db.url).stderr(Stdio::null()));
    // Wait until the handler has started. Otherwise the first signal would release the job, and the worker would end by itself.
    eventually("its handler has started", async || db.count(&format!("select count(*) from effect where job = {job}")).await > 0).await;
    // Two signals that arrive before the process handles them count as one, so signals are sent until the process has ended.
    let mut code = None;
    eventually("it has ended, although its handler never awaits", async || {
        assert!(Command::new("kill").arg(worker.0.id().to_string()).status().unwrap().success());
        code = worker.0.try_wait().unwrap().map(|status| status.code());
        code.is_some()
    })
    .await;
    assert_eq!(code, Some(Some(130)));
    assert_eq!(db.state(job).await, Some(JobState::Running), "what it held is recovered by others");
    db.finish().await;
}
