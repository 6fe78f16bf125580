//! Tests the diagnosis of jobs that are not running. Each cause is provoked, must be reported first with its details, and must disappear
//! after the suggested fix is applied.

mod limited;
mod locked;
mod finished;
mod runs;
mod served;
mod shown;
mod size;
mod truth;
mod turns;
mod waits;

use std::process::{Command, Output};

use queue_core::{
    Job as _, JobId, JobState, Queue,
    operate::{Cause, CauseKind, Why},
};
use queue_worker::Worker;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::{Act, Do, TestDb, UntilGo, eventually};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");
const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");

async fn ask(db: &TestDb, job: JobId) -> Why {
    Queue::new(&db.pool).job(job).why().await.unwrap()
}

/// Returns the first cause for a job. Panics if this cause is not of `kind`.
async fn first(db: &TestDb, job: JobId, kind: CauseKind) -> Cause {
    let why = ask(db, job).await;
    assert_eq!(why.first().kind, kind, "{why:#?}");
    why.first().clone()
}

/// Waits until the first cause for a job is of `kind`, and returns this cause.
async fn until_first(db: &TestDb, job: JobId, kind: CauseKind) -> Cause {
    let mut found = None;
    eventually(&format!("the first cause is {kind:?}"), async || {
        found = Some(ask(db, job).await.first().clone()).filter(|cause| cause.kind == kind);
        found.is_some()
    })
    .await;
    found.expect("the wait has ended because it was found")
}

fn kinds(why: &Why) -> Vec<CauseKind> {
    why.causes.iter().map(|cause| cause.kind).collect()
}

fn fact<'a>(cause: &'a Cause, name: &str) -> &'a Value {
    cause.facts.get(name).unwrap_or(&Value::Null)
}

async fn ok(db: &TestDb) -> JobId {
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).await.unwrap().id()
}

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<UntilGo>()
}

/// Starts a job that runs until the table `go` exists.
async fn busy(db: &TestDb) -> JobId {
    let job = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
    eventually("it runs", async || db.count(&format!("select count(*) from effect where job = {job}")).await > 0).await;
    job
}

async fn go(db: &TestDb) {
    db.pool.execute("create table if not exists go ()").await.unwrap();
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn run(on: &mut PgConnection, sql: &str) {
    on.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Applies the fix of a cause. If the fix contains a `queue-worker` command, runs the command. Otherwise executes the fix as an SQL
/// statement.
async fn cure(db: &TestDb, cause: &Cause) {
    let fix = cause.fix.as_deref().unwrap_or_else(|| panic!("no fix: {cause:?}"));
    let command = fix.split('`').find(|part| part.starts_with("queue-worker "));
    if let Some(command) = command {
        let done = shell(db, command);
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    } else {
        run(&mut connect(db).await, fix).await;
    }
}

/// Runs a `queue-worker` command in a shell.
fn shell(db: &TestDb, command: &str) -> Output {
    let typed = command.replacen("queue-worker", CLI, 1);
    Command::new("sh").args(["-c", &typed]).env("DATABASE_URL", &db.url).output().unwrap()
}

fn cli(db: &TestDb, arguments: &[&str]) -> Output {
    // Removes a variable of the test suite, which the command would report as an unknown setting.
    Command::new(CLI).args(arguments).env_remove("QUEUE_TEST_SKIPS").env("DATABASE_URL", &db.url).output().unwrap()
}

async fn completes(db: &TestDb, job: JobId) {
    db.until(job, JobState::Completed).await;
}
