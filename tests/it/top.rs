//! Tests `top` in a terminal: screen, keys and exit, also during a database outage.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use queue_core::{Job as _, JobRef};
use serde_json::{Value, json};
use tests::{
    Act, Do, TestDb, UntilGo, eventually,
    pooler::{Settings, pooler},
    server::{TestServer, url},
};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");
const PANICKING: &str = env!("CARGO_BIN_EXE_test-panicking-cli");
const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/it/top/terminal.py");

/// Starts the `top` command of `binary` in a terminal, and performs `steps` there.
fn start(binary: &str, url: &str, steps: &Value) -> Child {
    let mut command = Command::new("python3");
    command.arg(TERMINAL).arg(steps.to_string()).args([binary, "top"]).env("DATABASE_URL", url).env("TERM", "xterm-256color");
    command.env_remove("QUEUE_TEST_SKIPS").env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn line(child: &mut Child) -> Value {
    let mut text = String::new();
    // `terminal.py` waits for input after each line except the last. This reader therefore buffers no part of a later line.
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut text).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Waits until the program has ended, and checks that the terminal was restored. Returns the program's exit code and its complete output.
fn ended(mut child: Child) -> (Option<i64>, String) {
    let end = line(&mut child);
    child.wait().unwrap();
    let shown = end["shown"].as_str().unwrap().to_owned();
    assert_eq!(end["missing"], Value::Null, "the expected text, and the shown text");
    assert_eq!(end["restored"], true, "the terminal is restored: {shown}");
    let last = |what: &str| shown.rfind(what).unwrap_or_else(|| panic!("{what:?} is not there: {shown}"));
    assert!(last("\u{1b}[?1049l") > last("\u{1b}[?1049h"), "the other screen is left: {shown}");
    assert!(last("\u{1b}[?25h") > last("\u{1b}[?25l"), "the cursor is there: {shown}");
    (end["code"].as_i64(), shown)
}

async fn run(binary: &'static str, url: &str, steps: Value) -> (Option<i64>, String) {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || ended(start(binary, &url, &steps))).await.unwrap()
}

#[tokio::test]
async fn queues_workers_and_running_jobs_are_shown_and_keys_work() {
    let db = TestDb::new().await;
    for queue in ["mail", "mail", "render"] {
        Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue(queue).await.unwrap();
    }
    let job = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    let worker = db.worker().register::<UntilGo>().queue("default", 5);
    db.run_while(worker, async {
        eventually("it runs", async || db.count(&format!("select count(*) from effect where job = {job}")).await > 0).await;
        let steps = json!([
            ["until", "Queues"],
            ["until", "mail"],
            ["until", &job.to_string()],
            ["send", "s"],
            ["until", "sort by oldest"],
            ["send", "\t"],
            ["send", "\u{1b}[B"],
            ["send", "x"],
            ["size", 6, 20],
            ["until", "Workers", "Queues"],
            ["size", 1, 1],
            ["size", 40, 140],
            ["until", "Running"],
            ["send", "q"]
        ]);
        let (code, shown) = run(CLI, &db.url, steps).await;
        assert_eq!(code, Some(0));
        assert!(shown.contains("render") && shown.contains("until_go"), "{shown}");
        sqlx::raw_sql("create table if not exists go ()").execute(&db.pool).await.unwrap();
        db.until(job, queue_core::JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn keys_pressed_while_the_terminal_is_resized_are_handled() {
    let db = TestDb::new().await;
    let orders = ["oldest", "rate", "failed", "queue", "ready"];
    let mut steps = vec![json!(["until", "Queues"])];
    for round in 0..100 {
        steps.push(json!(["size", 30, 100 + round % 20]));
        steps.push(json!(["send", "s"]));
        steps.push(json!(["until", format!("sort by {}", orders[round % 5])]));
    }
    steps.push(json!(["send", "q"]));
    assert_eq!(run(CLI, &db.url, json!(steps)).await.0, Some(0));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_signal_and_control_c_restore_the_terminal() {
    let db = TestDb::new().await;
    for end in [json!(["signal", 15]), json!(["send", "\u{3}"]), json!(["send", "\u{1b}"]), json!(["signal", 2])] {
        let (code, _) = run(CLI, &db.url, json!([["until", "Queues"], end])).await;
        assert_eq!(code, Some(0), "{end}");
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_panic_restores_the_terminal_and_is_printed_there() {
    let db = TestDb::new().await;
    let steps = json!([["until", "Queues"], ["until", "it is time to panic"]]);
    let (code, shown) = run(PANICKING, &db.url, steps).await;
    let message = shown.rfind("it is time to panic").unwrap();
    let left = shown.find("\u{1b}[?1049l").unwrap();
    assert!(left < message, "it is shown on the screen that stays: {shown}");
    assert_eq!(code, Some(1), "it ends, though it was another thread's");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn an_unreachable_database_is_reported_and_the_last_screen_stays_until_it_returns() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue("seen_before").await.unwrap();
    let steps = json!([
        ["until", "seen_before"],
        ["say", "seen"],
        ["until", "no data for"],
        ["say", "away"],
        ["until", "seen_later"],
        ["send", "q"]
    ]);
    let url = server.url("app");
    let mut child = tokio::task::spawn_blocking(move || {
        let mut child = start(CLI, &url, &steps);
        line(&mut child);
        child
    })
    .await
    .unwrap();
    server.stop().unwrap();
    let go_on = |child: &mut Child| child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    go_on(&mut child);
    child = tokio::task::spawn_blocking(move || {
        line(&mut child);
        child
    })
    .await
    .unwrap();
    server.restart().await.unwrap();
    eventually("it takes writes", async || Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue("seen_later").await.is_ok()).await;
    go_on(&mut child);
    let (code, _) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    assert_eq!(code, Some(0));
    server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn a_refused_or_slow_part_shows_its_error_and_the_others_continue() {
    let server = TestServer::start_with(&["fsync=off"]).await.unwrap();
    let db = server.database("app").await.unwrap();
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue("seen_before").await.unwrap();
    let run_sql = async |sql: &'static str| sqlx::raw_sql(sql).execute(&db.pool).await.unwrap();
    run_sql(
        "create role watcher login; grant usage on schema queue to watcher; grant select on all tables in schema queue to watcher;
         grant execute on all functions in schema queue to watcher; grant usage, select on all sequences in schema queue to watcher;
         revoke select on queue.worker from watcher",
    )
    .await;
    let forbidden = json!([["until", "seen_before"], ["until", "Workers  no workers: "], ["until", "ready 1"], ["send", "q"]]);
    let (code, shown) = run(CLI, &server.url("app").replace("postgres@", "watcher@"), forbidden).await;
    assert_eq!(code, Some(0));
    assert!(shown.contains("permission denied"), "{shown}");
    for settings in [Settings::Refused, Settings::Ignored] {
        let port = pooler(server.port(), settings).await.unwrap();
        let mut locked = db.pool.begin().await.unwrap();
        sqlx::raw_sql("lock table queue.worker").execute(&mut *locked).await.unwrap();
        let place = url(port, "app");
        let locked_out = json!([
            ["until", "lock timeout"],
            ["say", "locked out"],
            ["until", "seen_later"],
            ["say", "the others go on"],
            ["until", "host:pid", "lock timeout"],
            ["send", "q"]
        ]);
        let mut child = start_and_wait(move || start(CLI, &place, &locked_out)).await;
        let later = Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue("seen_later").await.unwrap().id();
        child = continue_to_next_line(child).await;
        drop(locked);
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let (code, _) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
        assert_eq!(code, Some(0), "{settings:?}");
        JobRef::from_id(later).cancel(&db.pool).await.unwrap();
    }
    server.stop().unwrap();
}

/// Starts a program, and waits for its first line.
async fn start_and_wait(start: impl FnOnce() -> Child + Send + 'static) -> Child {
    let start = move || {
        let mut child = start();
        line(&mut child);
        child
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Sends a newline to the program and waits until the program prints its next line.
async fn continue_to_next_line(mut child: Child) -> Child {
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    start_and_wait(move || child).await
}

#[tokio::test]
async fn without_a_terminal_there_is_a_clear_error() {
    let output =
        Command::new(CLI).arg("top").env_remove("QUEUE_TEST_SKIPS").env("DATABASE_URL", "postgres://127.0.0.1:1/x").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("needs a terminal"));
}
