//! Runs the benchmark with `--quick`. Checks that the benchmark counts every job exactly once and drops its database.

use std::process::{Command, Output, Stdio};

use tests::TestDb;

/// Workloads whose output the test checks.
const WORKLOADS: [&str; 19] =
    ["W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "L1", "L2", "L3", "L4", "F1", "F2", "F3", "S1"];

async fn bench(db: &TestDb, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_test-bench"));
    command.args(arguments).env("DATABASE_URL", &db.url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = command.spawn().unwrap();
    let left = format!("select count(*) from pg_database where datname = 'queue_bench_{}'", process.id());
    let output = tokio::task::spawn_blocking(move || process.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(db.count(&left).await, 0, "it dropped its database");
    output
}

#[tokio::test]
#[ignore = "deep"]
async fn the_quick_bench_counts_every_job_once_in_every_workload_and_drops_its_database() {
    let db = TestDb::new().await;
    let output = bench(&db, &["--quick", "--json"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for workload in WORKLOADS {
        let figures: Vec<_> = lines.iter().filter(|line| line["workload"] == workload).collect();
        assert!(!figures.is_empty(), "no figure of {workload} in:\n{text}");
        for figure in figures {
            assert!(figure["value"].is_number() && figure["unit"].is_string() && figure["variant"].is_string(), "{figure}");
            assert!(!figure["runs"].as_array().unwrap().is_empty(), "{figure}");
            assert_eq!(figure["limit"].is_null(), figure["ratio"].is_null(), "{figure}");
        }
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 0, "it does not touch the store of the database that it was given");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_workload_is_named_in_any_case_and_an_unknown_one_is_refused_with_the_known_ones() {
    let db = TestDb::new().await;
    let output = bench(&db, &["w10", "--quick"]).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("uniform") && text.contains("hot"), "{text}");
    let output = bench(&db, &["W12"]).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("W12") && text.contains("L4, F1, F2, F3, F4, F5, F6, S1, all"), "{text}");
    db.finish().await;
}
