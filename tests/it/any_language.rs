//! Tests the SQL functions for clients in other languages: job status, waits and rejected waits. Also runs the example programs of
//! `docs/ANY_LANGUAGE.md`.

mod clients;

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, job};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{Act, Do, TestDb, eventually, server::TestServer};

/// Job type of `examples/src/bin/greeter.rs`.
#[job(send_only, name = "greet", output = String)]
#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Handler for Greet {
    async fn run(self, _: &Context) -> JobResult<String> {
        Ok(format!("hello, {}", self.name))
    }
}

/// Job that reports progress and then waits until the table `effect` is empty.
#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Half;

impl Handler for Half {
    async fn run(self, cx: &Context) -> JobResult {
        cx.progress(0.5);
        cx.stage("digging");
        while sqlx::query("select from effect").fetch_optional(cx.pool()).await?.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

type Row = (String, i16, Option<String>, Option<serde_json::Value>, Option<f64>, Option<String>);

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn status(db: &TestDb, job: JobId) -> Option<Row> {
    sqlx::query_as("select * from queue.status($1)").bind(job).fetch_optional(&db.pool).await.unwrap()
}

async fn wait(on: &mut PgConnection, job: JobId, timeout: &str) -> sqlx::Result<Option<Row>> {
    sqlx::query_as("select * from queue.wait($1, $2::text::interval)").bind(job).bind(timeout).fetch_optional(on).await
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().unwrap().code().unwrap().into_owned()
}

fn act(act: Act) -> Do {
    Do { act }
}

#[tokio::test]
async fn a_status_shows_the_state_of_a_job_and_its_reason() {
    let db = TestDb::new().await;
    assert_eq!(status(&db, JobId(7)).await, None, "an unknown job has no row");
    let later = act(Act::Ok("x".into())).enqueue(&db.pool).after(Duration::from_hours(1)).await.unwrap().id();
    let ready = act(Act::Ok("done".into())).enqueue(&db.pool).await.unwrap().id();
    let dead = act(Act::Terminal("no use".into())).enqueue(&db.pool).await.unwrap().id();
    assert_eq!(status(&db, later).await, Some(("scheduled".into(), 0, None, None, None, None)));
    assert_eq!(status(&db, ready).await, Some(("ready".into(), 0, None, None, None, None)));
    db.run_while(db.worker(), async {
        db.until(ready, JobState::Completed).await;
        db.until(dead, JobState::Dead).await;
    })
    .await;
    assert_eq!(status(&db, ready).await, Some(("completed".into(), 1, None, Some("done".into()), Some(1.0), None)));
    assert_eq!(status(&db, dead).await, Some(("dead".into(), 1, Some("no use".into()), None, None, None)));
    let cancelled: String = sqlx::query_scalar("select queue.cancel($1)").bind(later).fetch_one(&db.pool).await.unwrap();
    assert_eq!(cancelled, "cancelled");
    assert_eq!(status(&db, later).await, Some(("cancelled".into(), 0, None, None, None, None)));
    for (job, state) in [(ready, "completed"), (dead, "dead"), (later, "cancelled")] {
        let row = wait(&mut connect(&db).await, job, "0 s").await.unwrap();
        assert_eq!(row, status(&db, job).await, "a wait for a finished job returns its status");
        assert_eq!(row.unwrap().0, state);
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_running_job_shows_its_progress_and_a_retry_its_error() {
    let db = TestDb::new().await;
    sqlx::query("insert into effect (job) values (0)").execute(&db.pool).await.unwrap();
    let half = Half.enqueue(&db.pool).await.unwrap().id();
    let running = ("running".to_owned(), 1, None, None, Some(0.5), Some("digging".to_owned()));
    db.run_while(db.worker().register::<Half>(), async {
        eventually("it reports", async || status(&db, half).await.as_ref() == Some(&running)).await;
        sqlx::query("delete from effect").execute(&db.pool).await.unwrap();
        let result = wait(&mut connect(&db).await, half, "30 s").await.unwrap().unwrap();
        assert_eq!((result.0.as_str(), result.4, result.5.as_deref()), ("completed", Some(1.0), Some("digging")));
    })
    .await;
    let retried =
        act(Act::First(Box::new(Act::RetryIn(3_600_000)), Box::new(Act::Ok(String::new())))).enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker(), db.until(retried, JobState::Scheduled)).await;
    assert_eq!(status(&db, retried).await, Some(("scheduled".into(), 1, Some("later".into()), None, None, None)));
    sqlx::query("select queue.run_now($1)").bind(retried).execute(&db.pool).await.unwrap();
    db.run_while(db.worker(), db.until(retried, JobState::Completed)).await;
    assert_eq!(status(&db, retried).await, Some(("completed".into(), 2, None, Some("".into()), Some(1.0), None)), "its error is history");
    db.finish().await;
}

#[tokio::test]
async fn a_wait_ends_with_the_job_or_at_its_timeout() {
    let db = TestDb::new().await;
    let job = act(Act::Sleep(300)).enqueue(&db.pool).await.unwrap().id();
    let mut client = connect(&db).await;
    let began = Instant::now();
    assert_eq!(wait(&mut client, job, "200 ms").await.unwrap(), None, "no worker runs");
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    let row = db.run_while(db.worker(), wait(&mut client, job, "30 s")).await.unwrap().unwrap();
    assert_eq!((row.0.as_str(), row.1), ("completed", 1));
    let error = wait(&mut client, JobId(7), "30 s").await.unwrap_err();
    assert_eq!(code(&error), "P0002", "{error}");
    for nothing in ["select queue.wait(null)", "select queue.wait(7, null)"] {
        assert_eq!(code(&sqlx::query(nothing).execute(&mut client).await.unwrap_err()), "22004");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_wait_in_a_transaction_sees_later_commits() {
    let db = TestDb::new().await;
    let job = act(Act::Ok("seen".into())).enqueue(&db.pool).await.unwrap().id();
    let mut client = connect(&db).await;
    let mut tx = client.begin().await.unwrap();
    assert_eq!(wait(&mut tx, job, "1 ms").await.unwrap(), None);
    let row = db.run_while(db.worker(), wait(&mut tx, job, "30 s")).await.unwrap().unwrap();
    assert_eq!(row.3, Some("seen".into()));
    tx.commit().await.unwrap();
    db.finish().await;
}

const ENQUEUE: &str = "select queue.enqueue('do', '{}')";

#[tokio::test]
async fn a_wait_that_could_never_end_is_refused() {
    let db = TestDb::new().await;
    let job = act(Act::Ok(String::new())).enqueue(&db.pool).await.unwrap().id();
    let mut client = connect(&db).await;
    for level in ["repeatable read", "serializable"] {
        let mut tx = client.begin_with(sqlx::AssertSqlSafe(format!("begin isolation level {level}"))).await.unwrap();
        let error = wait(&mut tx, job, "30 s").await.unwrap_err();
        assert_eq!(code(&error), "25000", "{error}");
        assert!(error.to_string().contains(level), "{error}");
    }
    // A transaction cannot wait for a job that the transaction itself has enqueued or changed, even after a savepoint or within one
    // statement.
    for before in [None, Some("savepoint s")] {
        let mut tx = client.begin().await.unwrap();
        if let Some(before) = before {
            sqlx::query(before).execute(&mut *tx).await.unwrap();
        }
        let own: JobId = sqlx::query_scalar(ENQUEUE).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(status(&db, own).await, None, "no other session sees it");
        let error = wait(&mut tx, own, "30 s").await.unwrap_err();
        assert_eq!(code(&error), "25000", "{error}");
        assert!(error.to_string().contains("in this transaction"), "{error}");
    }
    let at_once = sqlx::query("select * from queue.wait((queue.enqueue('do', '{}')))").execute(&mut client).await.unwrap_err();
    assert_eq!(code(&at_once), "25000", "{at_once}");
    let mut tx = client.begin().await.unwrap();
    sqlx::query("select queue.set_priority($1, 7)").bind(job).execute(&mut *tx).await.unwrap();
    assert_eq!(code(&wait(&mut tx, job, "30 s").await.unwrap_err()), "25000");
    tx.rollback().await.unwrap();
    // A transaction with unrelated writes can wait.
    let mut tx = client.begin().await.unwrap();
    sqlx::query("insert into effect (job) values (0)").execute(&mut *tx).await.unwrap();
    assert_eq!(wait(&mut tx, job, "1 ms").await.unwrap(), None);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_wait_holds_no_lock_on_a_table_and_writes_nothing() {
    let db = TestDb::new().await;
    let job = act(Act::Ok(String::new())).enqueue(&db.pool).await.unwrap().id();
    let mut client = connect(&db).await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut client).await.unwrap();
    let waiting = tokio::spawn(async move {
        let mut tx = client.begin_with("begin read only").await.unwrap();
        let row = wait(&mut tx, job, "60 s").await.unwrap();
        let xid: Option<String> = sqlx::query_scalar("select pg_current_xact_id_if_assigned()::text").fetch_one(&mut *tx).await.unwrap();
        (row.unwrap().0, xid)
    });
    let held = "select count(l.pid) from pg_stat_activity a
        left join pg_locks l on l.pid = a.pid and l.locktype = 'relation'
          and l.relation in (select c.oid from pg_class c where c.relnamespace = 'queue'::regnamespace)
        where a.pid = $1 and a.wait_event = 'PgSleep' group by a.pid";
    // The query reads pg_stat_activity before pg_locks, and the waiting session may begin its next poll in between. Up to five of twenty
    // queries may therefore find locks.
    let (mut polls, mut free) = (0, 0);
    eventually("it sleeps, and holds nothing", async || {
        if let Some(held) = sqlx::query_scalar::<_, i64>(held).bind(pid).fetch_optional(&db.pool).await.unwrap() {
            polls += 1;
            free += i32::from(held == 0);
        }
        polls >= 20
    })
    .await;
    assert!(free >= 15, "{free} of {polls} polls found no lock");
    let result = db.run_while(db.worker(), waiting).await.unwrap();
    assert_eq!(result, ("completed".to_owned(), None));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn after_four_billion_transactions_a_wait_still_knows_its_own_transaction() {
    let server = TestServer::start_late().await.unwrap();
    let db = server.database("late").await.unwrap();
    let ours = "select queue.is_written_here($1)";
    let before: JobId = sqlx::query_scalar(ENQUEUE).fetch_one(&db.pool).await.unwrap();
    let mut tx = db.pool.begin().await.unwrap();
    let own: JobId = sqlx::query_scalar(ENQUEUE).fetch_one(&mut *tx).await.unwrap();
    let now: String = sqlx::query_scalar("select pg_current_xact_id()::text").fetch_one(&mut *tx).await.unwrap();
    assert!(now.parse::<u64>().unwrap() > 1 << 32, "{now}");
    for (job, is_ours) in [(own, true), (before, false)] {
        assert_eq!(sqlx::query_scalar::<_, bool>(ours).bind(job).fetch_one(&mut *tx).await.unwrap(), is_ours);
    }
    tx.rollback().await.unwrap();
}
