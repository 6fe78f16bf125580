//! Tests a lease locked by an open transaction: the verdicts of the lease, and the warning in the log. The module `held` tests which other
//! work continues.

use std::time::Instant;

use queue_core::{Context, Failure, Handler, Job as _, JobId, JobResult, JobState, Store, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use tests::{
    Act, Do, TestDb, WorkerProcess, eventually, operate,
    protocol::{claim, register},
};
use tokio::sync::Semaphore;
use uuid::Uuid;

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Job that ends immediately without an output, so that its lease is settled as a whole.
#[job(name = "beside_locked_leases")]
#[derive(Serialize, Deserialize)]
struct Plain;

impl Handler for Plain {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Job that completes or fails, as its payload specifies, once the semaphore of that outcome has a permit.
#[job(name = "of_a_locked_lease", max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct GatedJob {
    fails: bool,
}

static MAY_FAIL: Semaphore = Semaphore::const_new(0);
static MAY_SUCCEED: Semaphore = Semaphore::const_new(0);

impl Handler for GatedJob {
    async fn run(self, _: &Context) -> JobResult {
        let may = if self.fails { &MAY_FAIL } else { &MAY_SUCCEED };
        may.acquire().await.unwrap().forget();
        if self.fails { Err(Failure::terminal("as told")) } else { Ok(()) }
    }
}

/// Two jobs share a locked lease. The first job fails while the lease is locked, then the second job completes. Settling the lease by its
/// token alone would complete both jobs.
#[tokio::test]
#[ignore = "deep"]
async fn a_failure_that_waited_for_its_lease_is_not_completed_with_the_rest_of_it() {
    let db = TestDb::new().await;
    let mut both = db.pool.begin().await.unwrap();
    let bad = GatedJob { fails: true }.enqueue(&mut both).await.unwrap().id();
    let good = GatedJob { fails: false }.enqueue(&mut both).await.unwrap().id();
    both.commit().await.unwrap();
    db.run_while(Worker::new(db.pool.clone()).register::<GatedJob>().register::<Plain>(), async {
        db.until(good, JobState::Running).await;
        assert_eq!(db.count("select count(*) from queue.lease").await, 1);
        let mut holder = connect(&db).await;
        let mut held = holder.begin().await.unwrap();
        held.execute("select from queue.lease for update").await.unwrap();
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        for may in [&MAY_FAIL, &MAY_SUCCEED] {
            may.add_permits(1);
            eventually("its verdict waits", async || db.count(waits).await == 1).await;
            let other = Plain.enqueue(&db.pool).await.unwrap().id();
            db.until(other, JobState::Completed).await;
        }
        held.rollback().await.unwrap();
        db.until(good, JobState::Completed).await;
        db.until(bad, JobState::Dead).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn other_verdicts_are_written_and_the_log_names_the_session_that_has_a_lease_locked() {
    let db = TestDb::new().await;
    let since = Instant::now();
    let settings = [("QUEUE_LOG", "warn")];
    let worker = WorkerProcess::start_with(env!("CARGO_BIN_EXE_test-cli"), &db.url, &["run", "--log-format", "json"], &settings);
    let enqueue = async |act| Do { act }.enqueue(&db.pool).await.unwrap().id();
    let first: JobId = enqueue(Act::UntilGo(Box::new(Act::Ok("x".to_owned())))).await;
    db.until(first, JobState::Running).await;
    let mut holder = connect(&db).await;
    let pid: i64 = sqlx::query_scalar("select pg_backend_pid()::bigint").fetch_one(&mut holder).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    held.execute("select from queue.lease for update").await.unwrap();
    db.pool.execute("create table go ()").await.unwrap();
    let warning = || {
        let lines: Vec<serde_json::Value> = worker.log_since(since).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.into_iter().find(|line| line["fields"]["pid"] == pid)
    };
    eventually("it is reported", async || warning().is_some()).await;
    assert!(warning().unwrap()["fields"]["message"].as_str().unwrap().contains("pg_terminate_backend"), "{:?}", warning());
    for act in [Act::Ok("x".to_owned()), Act::Terminal("x".to_owned())] {
        let state = if matches!(act, Act::Ok(_)) { JobState::Completed } else { JobState::Dead };
        let other = enqueue(act).await;
        db.until(other, state).await;
    }
    assert_eq!(db.state(first).await, Some(JobState::Running));
    held.rollback().await.unwrap();
    db.until(first, JobState::Completed).await;
    assert_eq!(db.count("select count(*) from queue.done where attempts <> 1").await, 0);
    db.finish().await;
}

/// Blocks a verdict with a trigger that waits for an advisory lock. Such a lock belongs to neither a row nor a table.
#[tokio::test]
#[ignore = "deep"]
async fn a_verdict_behind_a_lock_of_no_table_waits_alone_and_is_written_once_it_is_free() {
    let db = TestDb::new().await;
    let mut holder = connect(&db).await;
    let waits = "create function waits() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(7); return new; end';
        create trigger waits before insert on queue.dead for each row execute function waits();";
    db.run(waits).await;
    holder.execute("select pg_advisory_lock(7)").await.unwrap();
    db.run_while(db.worker(), async {
        let enqueue = async |act| Do { act }.enqueue(&db.pool).await.unwrap().id();
        let bad = enqueue(Act::Terminal("x".to_owned())).await;
        for n in 0..20 {
            let good = enqueue(Act::Ok(n.to_string())).await;
            db.until(good, JobState::Completed).await;
        }
        assert_eq!(db.state(bad).await, Some(JobState::Running));
        holder.execute("select pg_advisory_unlock(7)").await.unwrap();
        db.until(bad, JobState::Dead).await;
    })
    .await;
    db.finish().await;
}

/// Result row of `locked_rows.sql`: the table of the locked row, its lease or job, and the pid of the session that holds the lock.
type LockedRow = (String, Option<Uuid>, Option<JobId>, Option<i32>);

#[tokio::test]
async fn of_the_given_leases_and_jobs_the_locked_ones_are_reported() {
    let db = TestDb::new().await;
    let (mut on, mut holder) = (connect(&db).await, connect(&db).await);
    let (mut tokens, mut jobs) = (Vec::new(), Vec::new());
    let worker = register(&mut on).await.unwrap();
    for key in ["a", "b", "c"] {
        jobs.push(operate::enqueue_with(&mut on, Some(key), None).await.unwrap().0);
        tokens.push(claim(&mut on, worker, 1).await.unwrap().token);
    }
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
    on.execute("set lock_timeout = '2s'").await.unwrap();
    let locked = Store::default().sql(include_str!("../../queue-worker/sql/locked_rows.sql"));
    for (relation, column, others) in [("lease", "token", false), ("job", "id", true), ("active_key", "id", true)] {
        let mut held = holder.begin().await.unwrap();
        let first = if others { jobs[0].to_string() } else { tokens[0].to_string() };
        let lock = format!("select from queue.{relation} where {column}::text <> '{first}' for update");
        held.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        let rows = sqlx::query(locked).bind(&tokens[..2]).bind(&jobs[..2]).fetch_all(&mut on).await.unwrap();
        let found: Vec<LockedRow> =
            rows.iter().map(|row| (row.get("relation"), row.get("token"), row.get("job"), row.get("pid"))).collect();
        let of = if others { (None, Some(jobs[1])) } else { (Some(tokens[1]), None) };
        assert_eq!(found, [(relation.to_owned(), of.0, of.1, Some(pid))]);
        assert_eq!(sqlx::query(locked).bind(&tokens[..1]).bind(&jobs[..1]).fetch_all(&mut on).await.unwrap().len(), 0);
        held.rollback().await.unwrap();
    }
    db.finish().await;
}
