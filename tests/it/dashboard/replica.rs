//! Tests the dashboard with a standby: reads go to the standby, writes to the primary.

use std::process::{Command, Output};

use queue_core::{Job as _, JobId};
use queue_worker::dashboard::{Options, listen};
use serde_json::json;
use tests::{Act, Do, eventually, server::TestServer};

use super::client::Client;

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

/// Runs a CLI command that is configured to read from the standby and to write to the primary.
fn command(primary: &str, standby: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(CLI);
    command.args(arguments).env_clear().env("DATABASE_URL", primary).env("QUEUE_READ_URL", standby).output().unwrap()
}

async fn enqueue(pool: &sqlx::PgPool) -> JobId {
    Do { act: Act::Ok("x".into()) }.enqueue(pool).await.unwrap().id()
}

#[tokio::test]
#[ignore = "deep"]
async fn commands_and_pages_read_from_a_standby_and_write_to_the_primary() {
    let primary = TestServer::start().await.unwrap();
    let database = primary.database("looked_at").await.unwrap();
    let old = enqueue(&database.pool).await;
    let standby = primary.standby(primary.port()).await.unwrap();
    let reads = sqlx::PgPool::connect(&standby.url("looked_at")).await.unwrap();
    let seen = async |job: JobId| -> bool {
        sqlx::query_scalar("select exists (select from queue.job where id = $1)").bind(job).fetch_one(&reads).await.unwrap()
    };
    eventually("the standby has the job", async || seen(old).await).await;
    // Pause the replay, so that the standby does not receive later changes.
    sqlx::query("select pg_wal_replay_pause()").execute(&reads).await.unwrap();
    let paused = "select count(*) from pg_get_wal_replay_pause_state() s where s = 'paused'";
    eventually("it is paused", async || sqlx::query_scalar::<_, i64>(paused).fetch_one(&reads).await.unwrap() == 1).await;
    let new = enqueue(&database.pool).await;

    let run = |arguments: &[&str]| command(&primary.url("looked_at"), &standby.url("looked_at"), arguments);
    let (old_id, new_id) = (old.to_string(), new.to_string());
    for arguments in [vec!["list"], vec!["stats"], vec!["history"], vec!["export"], vec!["show", &old_id], vec!["why", &old_id]] {
        let output = run(&arguments);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!stdout.contains(&new_id), "{arguments:?} has queried the primary: {stdout}");
        assert!(["stats", "history"].contains(&arguments[0]) || stdout.contains(&old_id), "{arguments:?}: {stdout}");
    }
    assert_eq!(run(&["show", &new_id]).status.code(), Some(3), "the standby does not know it yet");

    let listening = listen("127.0.0.1:0".parse().unwrap(), Options::default().read_from(reads.clone())).await.unwrap();
    let client = Client::new(listening.address());
    let serving = tokio::spawn(listening.serve(database.pool.clone(), queue_core::Store::default(), std::future::pending()));
    let pages = ["/", "/jobs", "/dead", "/history", "/queues", "/workers", "/schedules", "/limits", "/audit"].map(str::to_owned);
    let answers =
        ["overview", "jobs", "queues", "workers", "limits", "schedules", "audit", "history"].map(|name| format!("/api/v1/{name}"));
    for path in pages.into_iter().chain(answers).chain([format!("/jobs/{old}"), format!("/api/v1/jobs/{old}/why")]) {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(!answer.text().contains(&new_id), "{path} has queried the primary");
    }
    assert_eq!(client.get(&format!("/jobs/{new}")).await.status, 404);

    // The operation succeeds on the primary, although the standby does not show the change.
    assert!(run(&["cancel", &old_id]).status.success());
    let acted = client.post(&format!("/api/v1/jobs/{new}/act"), &json!({ "act": "cancel" })).await;
    assert_eq!(acted.status, 200, "{}", acted.text());
    assert_eq!(database.count("select count(*) from queue.jobs where state = 'cancelled'").await.unwrap(), 2);
    serving.abort();
    reads.close().await;
}
