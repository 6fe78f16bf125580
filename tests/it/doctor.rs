//! Tests that `doctor` finds faults of a store or its server. Each fault is created, found by the check, and removed by the fix that
//! the finding suggests.

mod healthy;
mod jobs;
mod path;
mod sessions;
mod settings;
mod shown;
mod stored;
mod workers;

use std::process::{Command, Output};

use queue_core::{
    Queue,
    operate::{Checkup, Diagnosis, Finding, FindingKind},
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgPool};
use tests::{TestDb, eventually};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");

async fn ask(pool: &PgPool, checkup: &Checkup) -> Diagnosis {
    Queue::new(pool).doctor(checkup).await
}

async fn found_by(pool: &PgPool, checkup: &Checkup, kind: FindingKind) -> Vec<Finding> {
    let found = ask(pool, checkup).await.findings;
    found.into_iter().filter(|finding| finding.kind == kind).collect()
}

/// Returns the finding of this kind, which must be the only one of its kind.
async fn one(pool: &PgPool, checkup: &Checkup, kind: FindingKind) -> Finding {
    let found = ask(pool, checkup).await;
    let mut of_kind: Vec<&Finding> = found.findings.iter().filter(|finding| finding.kind == kind).collect();
    assert_eq!(of_kind.len(), 1, "{kind}: {found:#?}");
    of_kind.remove(0).clone()
}

/// Waits until there is no finding of this kind.
async fn is_gone(pool: &PgPool, checkup: &Checkup, kind: FindingKind) {
    eventually(&format!("{kind} is gone"), async || found_by(pool, checkup, kind).await.is_empty()).await;
}

/// Executes the suggested fix as SQL, or in a shell if the fix is a `queue-worker` command.
async fn paste(url: &str, finding: &Finding) {
    assert!(finding.can_be_pasted, "{finding:#?}");
    if finding.fix.starts_with("queue-worker ") {
        let done = shell(url, &finding.fix);
        assert!(done.status.success(), "{}: {}", finding.fix, String::from_utf8_lossy(&done.stderr));
        return;
    }
    let mut on = PgConnection::connect(url).await.unwrap();
    for statement in finding.fix.split("; ") {
        run(&mut on, statement).await;
    }
    on.close().await.unwrap();
}

/// Checks that the fault is found, that its fix can be pasted, and that the finding is gone afterwards.
async fn is_cured(url: &str, pool: &PgPool, checkup: &Checkup, kind: FindingKind) {
    let finding = one(pool, checkup, kind).await;
    paste(url, &finding).await;
    is_gone(pool, checkup, kind).await;
}

async fn run(on: &mut PgConnection, sql: &str) {
    on.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn make(pool: &PgPool, sql: &str) {
    run(&mut pool.acquire().await.unwrap(), sql).await;
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

fn shell(url: &str, command: &str) -> Output {
    let typed = command.replacen("queue-worker", CLI, 1);
    Command::new("sh").args(["-c", &typed]).env("DATABASE_URL", url).output().unwrap()
}

fn cli(url: &str, arguments: &[&str]) -> Output {
    // Otherwise the check would report this environment variable of the test suite as an unknown setting.
    Command::new(CLI).args(arguments).env_remove("QUEUE_TEST_SKIPS").env("DATABASE_URL", url).output().unwrap()
}
