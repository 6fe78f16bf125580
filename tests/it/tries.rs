//! Tests the command `try`, which runs a job's handler locally. The store never changes, whatever the handler does.

use std::process::{Command, Output};

use queue_core::{Job as _, JobId, JobState, Queue, job};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tests::{Act, Do, Own, Stages, Steps, TestDb, UntilGo, Within, eventually};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");
/// Worker binary with the job type `Own` and a middleware that logs.
const OWN: &str = env!("CARGO_BIN_EXE_test-panicking-cli");

/// Job type without a handler in any binary.
#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Nobodys;

/// Job type that this crate only enqueues. The binary with the handler has the decryption key.
#[job(send_only, name = "tried_sealed", seal = "tried")]
#[derive(Serialize, Deserialize)]
struct Sealed {
    text: String,
}

fn run(binary: &str, db: &TestDb, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary);
    command.arg("try").args(arguments).env_remove("QUEUE_TEST_SKIPS").env_remove("RUST_BACKTRACE").env("DATABASE_URL", &db.url);
    command.output().unwrap()
}

/// Returns the contents of the store and of the table `effect`.
async fn stored(db: &TestDb) -> String {
    let tables = ["job", "ready", "scheduled", "blocked", "lease", "dead", "done", "done_many", "failure", "progress", "lane", "waiter"];
    let of = |table: &str| format!("select '{table}' as of, to_jsonb(t)::text as row from queue.{table} t");
    let all = tables.map(of).join(" union all ") + " union all select 'effect', to_jsonb(t)::text from effect t";
    let text = format!("select coalesce(string_agg(of || row, E'\\n' order by of, row), '') from ({all}) a");
    sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&db.pool).await.unwrap()
}

/// Tries the job, and checks that nothing has changed. Returns the exit code and the output.
async fn tried(binary: &str, db: &TestDb, job: JobId, more: &[&str]) -> (Option<i32>, Value) {
    let before = stored(db).await;
    let id = job.to_string();
    let output = run(binary, db, &[&[id.as_str(), "--json"], more].concat());
    assert_eq!(stored(db).await, before, "nothing has changed");
    let parsed = serde_json::from_slice(&output.stdout);
    (output.status.code(), parsed.unwrap_or_else(|_| String::from_utf8(output.stderr).unwrap().into()))
}

async fn within(db: &TestDb, how: &str) -> JobId {
    Within { how: how.to_owned() }.enqueue(&db.pool).await.unwrap().id()
}

#[tokio::test]
#[ignore = "deep"]
async fn a_transactional_handler_is_tried_and_leaves_nothing_in_every_case() {
    let db = TestDb::new().await;
    for (how, code, verdict, error) in [
        ("well", 0, "complete", ""),
        ("child", 0, "complete", ""),
        ("fail", 4, "retry", "as told"),
        ("terminal", 4, "dead", "as told"),
        ("snooze", 4, "snooze", ""),
        ("panic", 4, "retry", "panicked: as told"),
        ("hang", 4, "retry", "elapsed"),
        ("bad sql", 4, "retry", "division by zero"),
        ("swallow", 4, "retry", "cannot be committed"),
        ("deferred", 4, "retry", "cannot be committed"),
        ("all immediate", 0, "complete", ""),
        ("commit by hand", 4, "retry", "unsupported ON COMMIT"),
        ("commit by hand, then write", 4, "retry", "read-only"),
        ("rollback by hand", 4, "retry", "cannot be committed"),
        ("rollback by hand, then write", 4, "retry", "read-only"),
        ("beside", 4, "retry", "read-only"),
    ] {
        let (found, report) = tried(CLI, &db, within(&db, how).await, &[]).await;
        assert_eq!((found, report["verdict"].as_str()), (Some(code), Some(verdict)), "{how}: {report}");
        assert!(report["error"].as_str().unwrap_or_default().contains(error), "{how}: {report}");
    }
    db.finish().await;
}

#[tokio::test]
async fn writes_kept_by_a_handler_that_ends_its_own_transaction_are_reported() {
    let db = TestDb::new().await;
    let job = within(&db, "rollback by hand, in a chain").await;
    let output = run(CLI, &db, &[&job.to_string(), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["rolled_back"].as_bool()), (Some(4), Some(false)), "{report}");
    assert!(report["error"].as_str().unwrap().contains("may be committed"), "{report}");
    assert_eq!(db.count("select count(*) from effect where job = 0").await, 1, "and it is");
    let words = String::from_utf8(run(CLI, &db, &[&job.to_string()]).stdout).unwrap();
    assert!(words.ends_with("its later changes may be kept\n"), "{words}");
    assert_eq!(db.state(job).await, Some(JobState::Ready));
    db.finish().await;
}

#[tokio::test]
async fn a_handler_whose_session_was_lost_is_not_reported_as_having_ended_its_transaction() {
    let db = TestDb::new().await;
    let job = within(&db, "lose its session").await;
    // The verdict is the same whether the handler ignores or returns the error from the terminated session.
    for job in [job, within(&db, "fail for its session").await] {
        let (code, report) = tried(CLI, &db, job, &[]).await;
        assert_eq!((code, report["verdict"].as_str(), report["rolled_back"].as_bool()), (Some(4), Some("retry"), None), "{report}");
        let words = String::from_utf8(run(CLI, &db, &[&job.to_string()]).stdout).unwrap();
        assert!(words.contains("the server rolled back uncommitted changes; if the handler had ended"), "{words}");
        assert_eq!((db.state(job).await, db.count("select count(*) from effect").await), (Some(JobState::Ready), 0));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_login_without_the_privilege_for_temporary_tables_gets_a_clear_error() {
    let db = TestDb::new().await;
    let (login, job) = (format!("tries_{}", std::process::id()), within(&db, "well").await);
    let database: String = sqlx::query_scalar("select current_database()").fetch_one(&db.pool).await.unwrap();
    let may_all = format!(
        "create role {login} login; revoke temporary on database {database} from public;
         grant usage on schema queue to {login}; grant select on all tables in schema queue to {login};
         grant execute on all functions in schema queue to {login}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(may_all)).execute(&db.pool).await.unwrap();
    let options = (*db.pool.connect_options()).clone().username(&login);
    let output = Command::new(CLI)
        .args(["try", &job.to_string()])
        .env_remove("QUEUE_TEST_SKIPS")
        .env("DATABASE_URL", sqlx::ConnectOptions::to_url_lossy(&options).to_string())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("permission denied to create temporary tables"), "{message}");
    let gone = format!("drop owned by {login}; drop role {login}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(gone)).execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_dead_job_is_tried_as_after_a_requeue_and_stays_dead() {
    let db = TestDb::new().await;
    let job = within(&db, "fail").await;
    db.run_until_idle(db.worker().register::<Within>()).await;
    assert_eq!(db.state(job).await, Some(JobState::Dead));
    let (code, report) = tried(CLI, &db, job, &[]).await;
    assert_eq!((code, report["state"].as_str(), report["verdict"].as_str()), (Some(4), Some("dead"), Some("retry")), "{report}");
    // The text output contains the error and the unchanged state of the job.
    let output = run(CLI, &db, &[&job.to_string()]);
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(words.contains("as told") && words.ends_with("rolled back; the job is dead as before\n"), "{words}");
    let done = within(&db, "well").await;
    db.run_until_idle(db.worker().register::<Within>()).await;
    assert_eq!(tried(CLI, &db, done, &[]).await.0, Some(0), "one that has completed too");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_plain_handler_is_tried_only_with_an_option_and_its_outside_effects_stay() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).await.unwrap().id();
    let (code, report) = tried(CLI, &db, job, &[]).await;
    assert_eq!(code, Some(2), "{report}");
    assert!(report.as_str().unwrap().contains("--yes"), "{report}");
    let output = run(CLI, &db, &[&job.to_string(), "--yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(db.count("select count(*) from effect").await, 1, "that is not rolled back");
    assert_eq!(db.state(job).await, Some(JobState::Ready));
    for (act, error) in [(Act::PanicWithStruct, "not a string"), (Act::Terminal("no way".into()), "no way")] {
        let job = Do { act }.enqueue(&db.pool).await.unwrap().id();
        let output = run(CLI, &db, &[&job.to_string(), "--yes"]);
        assert_eq!(output.status.code(), Some(4));
        assert!(String::from_utf8_lossy(&output.stdout).contains(error));
    }
    // A handler that never yields is abandoned.
    let block = Do { act: Act::Block(60_000) }.enqueue(&db.pool).await.unwrap().id();
    let output = run(CLI, &db, &[&block.to_string(), "--yes", "--within", "1s"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stdout).contains("did not end in time"));
    assert_eq!(db.state(block).await, Some(JobState::Ready));
    db.finish().await;
}

#[tokio::test]
async fn a_transaction_that_the_handler_begins_is_rolled_back_and_middleware_runs() {
    let db = TestDb::new().await;
    for (how, code, verdict) in [
        ("plain", 0, "complete"),
        ("fail", 4, "dead"),
        ("child, fail", 4, "dead"),
        ("not completed", 4, "retry"),
        ("error after", 0, "complete"),
        ("panic after", 0, "complete"),
        ("deferred, then again", 0, "complete"),
    ] {
        let job = Own { how: how.to_owned() }.enqueue(&db.pool).await.unwrap().id();
        let (found, report) = tried(OWN, &db, job, &["--yes"]).await;
        assert_eq!((found, report["verdict"].as_str()), (Some(code), Some(verdict)), "{how}: {report}");
    }
    let job = Own { how: "plain".to_owned() }.enqueue(&db.pool).await.unwrap().id();
    let output = run(OWN, &db, &[&job.to_string(), "--yes"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("middleware around own"), "{output:?}");

    // The handler's progress reports are part of the output and are not stored.
    let job = Steps { steps: 3, hold: None }.enqueue(&db.pool).await.unwrap().id();
    let output = run(OWN, &db, &[&job.to_string(), "--yes", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let progress = &report["progress"];
    assert_eq!((progress["fraction"].as_f64(), progress["stage"].as_str()), (Some(1.0), Some("steps")), "{report}");
    assert_eq!(progress["counts"]["step"], 3, "{report}");
    assert_eq!(db.count("select count(*) from queue.progress").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_sealed_payload_is_opened_where_the_key_is() {
    let db = TestDb::new().await;
    queue_core::use_keyring("tried", queue_core::Keyring::new("first", queue_core::Secret::new([7; 32]))).unwrap();
    let job = Sealed { text: "do-not-show".to_owned() }.enqueue(&db.pool).await.unwrap().id();
    let (code, report) = tried(OWN, &db, job, &["--yes"]).await;
    assert_eq!((code, report["error"].as_str()), (Some(4), Some("opened, and 11 bytes long")), "{report}");
    assert!(!report.to_string().contains("do-not-show"));
    assert_eq!(tried(CLI, &db, job, &["--yes"]).await.0, Some(3), "this one has neither key nor handler");
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_tried_is_refused() {
    let db = TestDb::new().await;
    let (code, report) = tried(CLI, &db, "7".parse().unwrap(), &[]).await;
    assert_eq!(code, Some(3), "{report}");
    let nobodys = Nobodys.enqueue(&db.pool).await.unwrap().id();
    let (code, report) = tried(CLI, &db, nobodys, &[]).await;
    assert_eq!(code, Some(3));
    assert!(report.as_str().unwrap().contains("no handler for job type `nobodys`"), "{report}");
    // The payload cannot be deserialized.
    let bad = within(&db, "well").await;
    sqlx::query("update queue.job set payload = '{\"what\": 1}' where id = $1").bind(bad).execute(&db.pool).await.unwrap();
    let (code, report) = tried(CLI, &db, bad, &[]).await;
    assert_eq!(code, Some(4), "{report}");
    assert!(report["error"].as_str().is_some_and(|error| error.contains("how")), "{report}");
    let running = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<UntilGo>(), async {
        db.until(running, JobState::Running).await;
        eventually("it has begun", async || db.count(&format!("select count(*) from effect where job = {running}")).await > 0).await;
        let output = run(CLI, &db, &[&running.to_string(), "--yes"]);
        assert_eq!(output.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is running on a worker"));
        sqlx::raw_sql("create table if not exists go ()").execute(&db.pool).await.unwrap();
        db.until(running, JobState::Completed).await;
    })
    .await;
    assert!(Queue::new(&db.pool).workers().await.unwrap().is_empty());
    db.finish().await;
}

#[tokio::test]
async fn a_durable_job_is_tried_from_its_journal_and_journals_nothing() {
    let db = TestDb::new().await;
    let job = Stages { stages: 3, ms: 1 }.enqueue(&db.pool).await.unwrap().id();
    let journaled = "insert into queue.step (id, name, attempt, at, ran_ms, output) values ($1, 'within/0', 1, now(), 0, '\"text\"')";
    sqlx::query(journaled).bind(job).execute(&db.pool).await.unwrap();
    let tried = || {
        let output = run(OWN, &db, &[&job.to_string(), "--json", "--yes"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report["verdict"].as_str().unwrap().to_owned(), report["error"].as_str().unwrap_or_default().to_owned())
    };
    let (code, verdict, error) = tried();
    assert!(code == Some(4) && verdict == "retry" && error.contains("does not fit the type `i32`"), "it reads the journal: {error}");
    sqlx::raw_sql("update queue.step set output = '40'").execute(&db.pool).await.unwrap();
    assert_eq!(tried(), (Some(0), "complete".to_owned(), String::new()));
    let effects = db.count("select count(*) from effect where attempt < 1000").await;
    assert_eq!((effects, db.count("select count(*) from queue.step").await), (0, 1), "rolled back, and not journaled");
    db.finish().await;
}
