//! Tests settings from the settings file, the environment and the arguments. Also tests handler state that is built from the pool.

use std::process::Stdio;

use queue_core::{JobId, JobState};
use serde_json::{Value, json};
use tests::TestDb;

use super::{RunningCommand, command, failed, folder};

const STATEFUL: &str = env!("CARGO_BIN_EXE_test-stateful-cli");

#[tokio::test]
async fn handlers_share_state_built_from_a_pool_whose_size_comes_from_any_setting() {
    let db = TestDb::new().await;
    let name = db.url.split('?').next().unwrap().rsplit('/').next().unwrap();
    let file = folder().join("pool.toml");
    std::fs::write(&file, "[worker]\npool_size = 5\n").unwrap();
    let cases = [
        (vec!["run", "--pool-size", "3"], vec![("QUEUE_POOL_SIZE", "4")], 3),
        (vec!["run", "--config", file.to_str().unwrap()], vec![("QUEUE_POOL_SIZE", "4")], 4),
        (vec!["run", "--config", file.to_str().unwrap()], vec![], 5),
        (vec!["run"], vec![], 20),
    ];
    for (arguments, variables, size) in cases {
        let id: JobId = sqlx::query_scalar("select queue.enqueue('tell_state', '{}')").fetch_one(&db.pool).await.unwrap();
        let mut run = command(STATEFUL, &arguments);
        let mut worker = RunningCommand::start(run.env("DATABASE_URL", &db.url).envs(variables).stderr(Stdio::null()));
        db.until(id, JobState::Completed).await;
        let output: Value = sqlx::query_scalar("select output from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
        assert_eq!(output, json!([name, size]), "{arguments:?}");
        assert_eq!(worker.terminate(), Some(0));
    }
    db.finish().await;
}

#[tokio::test]
async fn state_that_cannot_be_made_ends_the_process_with_the_reason() {
    let db = TestDb::new().await;
    let ended = |run: &mut std::process::Command| failed(&run.env("DATABASE_URL", &db.url).env("QUEUE_LOG", "off").output().unwrap());
    let (code, message) = ended(command(STATEFUL, &["run"]).env("STATE", "none"));
    assert_eq!((code, message.as_str()), (Some(1), "error: no name can be had\n"));
    let (code, message) = ended(&mut command(STATEFUL, &["run", "--pool-size", "0"]));
    assert_eq!((code, message.as_str()), (Some(2), "error: pool_size is 0\nhelp: it must be 1 to 10000\n"));
    db.finish().await;
}
