//! Tests the dashboard that the CLI serves.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use queue_core::JobState;
use tests::{Act, TestDb};

use super::{client::Client, enqueue};

/// Creates a command whose environment contains only `DATABASE_URL`.
fn command(db: &TestDb, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_test-cli"));
    command.args(arguments).env_clear().env("DATABASE_URL", &db.url).current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    command
}

/// Child process, killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a client for the address in the first line that contains `mark`.
fn address(lines: impl std::io::Read, mark: &str) -> Client {
    let line = BufReader::new(lines).lines().map_while(Result::ok).find(|line| line.contains(mark)).expect("it prints its address");
    let address: String = line.split(mark).nth(1).unwrap().chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
    Client::new(address.parse().unwrap_or_else(|error| panic!("{error}: {line}")))
}

#[tokio::test]
async fn f59_the_command_refuses_a_public_address_without_a_token_and_never_shows_the_token() {
    let db = TestDb::new().await;
    for arguments in [["dashboard", "--addr", "0.0.0.0:0"], ["run", "--dashboard", "0.0.0.0:0"]] {
        let refused = command(&db, &arguments).output().unwrap();
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains("requires a token") && message.contains("help: set QUEUE_DASHBOARD_TOKEN"), "{message}");
    }
    let short = command(&db, &["dashboard", "--addr", "0.0.0.0:0"]).env("QUEUE_DASHBOARD_TOKEN", "topsecret").output().unwrap();
    let help = command(&db, &["dashboard", "--help"]).env("QUEUE_DASHBOARD_TOKEN", "topsecret").output().unwrap();
    let message = [&short.stderr, &short.stdout, &help.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat();
    assert!(short.status.code() == Some(2) && !message.contains("topsecret"), "{message}");
    db.finish().await;
}

#[tokio::test]
async fn the_command_serves_a_store_with_three_connections() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("x".into())).await;
    let mut served = command(&db, &["dashboard", "--addr", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = served.stdout.take().unwrap();
    let _process = Process(served);
    let client = address(stdout, "http://");
    let requests = (0..40).map(|_| client.get("/"));
    assert!(futures_util::future::join_all(requests).await.iter().all(|answer| answer.status == 200));
    assert!(client.get("/jobs").await.text().contains(&job.to_string()));
    let others =
        db.count("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker'").await;
    assert!((1..=4).contains(&others), "{others} connections");
    let refused = client.post("/api/v1/schedules/none/act", &serde_json::json!({ "act": "pause" })).await;
    assert!(refused.status == 404 && refused.text().contains("`test-cli cron list`"), "{refused:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_serves_it_beside_its_jobs_also_while_one_of_them_blocks_its_thread() {
    let db = TestDb::new().await;
    let mut worker = command(&db, &["run", "--dashboard", "127.0.0.1:0", "--concurrency", "8"])
        .env("TOKIO_WORKER_THREADS", "2")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = worker.stderr.take().unwrap();
    let _process = Process(worker);
    let client = address(stderr, "address=");
    let mut blocking = Vec::new();
    for _ in 0..4 {
        blocking.push(enqueue(&db, Act::Block(3000)).await);
    }
    db.until(blocking[0], JobState::Running).await;
    let page = client.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("1 worker alive"), "{}", page.text());
    db.until(blocking[3], JobState::Completed).await;
    db.finish().await;
}
