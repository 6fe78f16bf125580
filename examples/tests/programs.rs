//! Runs every example program to completion on its own database. The demo starts its own server.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tests::TestDb;

/// Returns the paths of the programs built from `examples/examples`.
fn programs() -> Vec<PathBuf> {
    let built = std::env::current_exe().unwrap();
    let built = built.ancestors().nth(2).unwrap().join("examples");
    let sources = std::fs::read_dir("examples").unwrap().map(|entry| entry.unwrap().path());
    let mut programs: Vec<PathBuf> = sources.map(|source| built.join(source.file_stem().unwrap())).collect();
    programs.sort();
    programs
}

/// Runs a program to completion. Returns a description of its failure, or `None` if it succeeded.
async fn fault(program: &Path) -> Option<String> {
    let db = TestDb::new().await;
    let mut command = Command::new(program);
    command.env("DATABASE_URL", &db.url).stdin(Stdio::null());
    let ran = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let fault = match ran {
        Ok(ran) if ran.status.success() => None,
        Ok(ran) => Some(format!("{}: {}\n{}", program.display(), ran.status, String::from_utf8_lossy(&ran.stderr))),
        Err(error) => Some(format!("{}: {error}; `cargo test --workspace --no-run` builds it", program.display())),
    };
    db.finish().await;
    fault
}

#[tokio::test]
#[ignore = "examples"]
async fn every_example_succeeds() {
    let programs = programs();
    assert!(programs.len() > 30, "only {} examples", programs.len());
    let mut faults = Vec::new();
    for four in programs.chunks(4) {
        faults.extend(futures_util::future::join_all(four.iter().map(|program| fault(program))).await.into_iter().flatten());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
#[ignore = "examples"]
fn the_demo_finds_the_duplicates_in_its_own_sources() {
    let data = std::env::temp_dir().join(format!("queue-demo-{}", std::process::id()));
    std::fs::create_dir_all(&data).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_demo")).arg("src").env("QUEUE_PG_DATA", &data).stdin(Stdio::null()).output().unwrap();
    // The demo's server stops shortly after the demo exits. Until then the removal of its data may be incomplete, so the removal is
    // repeated.
    while data.exists() {
        let _ = std::fs::remove_dir_all(&data);
    }
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
