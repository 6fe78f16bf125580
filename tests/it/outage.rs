//! Tests a database that locks tables, cuts connections, or dies while workers are running.

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Store, job, migrate};
use queue_worker::{
    Worker,
    embedded::{self, EmbeddedOptions},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tests::{Act, Do, TestDb, effects, eventually, within};

async fn enqueue_many(pool: &PgPool, jobs: i32, act: &str) {
    let statement =
        "select queue.enqueue('do', jsonb_build_object('act', $1::jsonb), '{\"max_attempts\": 50}') from generate_series(1, $2)";
    sqlx::query(statement).bind(act).bind(jobs).execute(pool).await.unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn f35_repeatedly_cut_connections_cause_neither_a_loss_nor_a_second_run() {
    const CUT: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
       where datname = current_database() and application_name in ('queue-worker claim', 'queue-worker settle', 'queue-worker housekeeping')";
    let db = TestDb::new().await;
    let (mut cuts, mut jobs) = (0, 0_i64);
    db.run_while(db.worker().lease_ttl(Duration::from_secs(30)).concurrency(50), async {
        while cuts < 20 {
            enqueue_many(&db.pool, 40, r#"{"Sleep": 1}"#).await;
            jobs += 40;
            assert!(jobs < 8000, "only {cuts} connections were cut");
            tokio::time::sleep(Duration::from_millis(30 + jobs.cast_unsigned() % 170)).await;
            cuts += db.count(CUT).await;
        }
        within(Duration::from_mins(1), "all are completed", async || db.count("select count(*) from queue.done").await == jobs).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from effect").await, jobs, "each ran once");
    assert_eq!(db.count("select count(*) from queue.done where attempts <> 1").await, 0, "and was charged once");
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f48_tables_locked_for_longer_than_a_lease_cause_no_second_run() {
    let db = TestDb::new().await;
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    enqueue_many(&db.pool, 60, r#"{"Sleep": 300}"#).await;
    db.run_while(db.worker().lease_ttl(Duration::from_secs(2)).concurrency(20), async {
        eventually("some are running", async || db.count("select count(*) from effect").await >= 20).await;
        let mut locked = connection.begin().await.unwrap();
        sqlx::query("lock table queue.ready, queue.lease, queue.done, queue.scheduled in access exclusive mode")
            .execute(&mut *locked)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(4)).await;
        locked.rollback().await.unwrap();
        within(Duration::from_secs(30), "all are completed", async || db.count("select count(*) from queue.done").await == 60).await;
        assert_eq!(db.count("select count(*) from queue.worker").await, 1, "the heartbeat went on");
    })
    .await;
    assert_eq!(db.count("select count(*) from effect").await, 60);
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn f43_settings_of_the_role_or_the_database_do_not_reach_the_worker() {
    let db = TestDb::new().await;
    let hostile = "do $$ begin execute format('alter database %I set default_transaction_isolation = serializable', current_database());
       execute format('alter database %I set statement_timeout = ''200ms''', current_database());
       execute format('alter database %I set lock_timeout = ''10ms''', current_database());
       execute format('alter database %I set idle_in_transaction_session_timeout = ''200ms''', current_database());
       execute format('alter database %I set datestyle = ''sql, dmy''', current_database());
       execute format('alter database %I set search_path = nowhere, public', current_database()); end $$";
    sqlx::query(hostile).execute(&db.pool).await.unwrap();
    let mut jobs = Vec::new();
    for act in [Act::Ok("x".into()), Act::FailUntil(2), Act::Snooze(50, 2), Act::Sleep(400), Act::Terminal("no".into())] {
        jobs.push(Do { act }.enqueue(&db.pool).await.unwrap().id());
    }
    let mut connection = PgConnection::connect(&db.url).await.unwrap();
    db.run_while(db.worker(), async {
        // The session resets the timeouts of the database, because they would end its wait for the lock.
        sqlx::raw_sql("set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0")
            .execute(&mut connection)
            .await
            .unwrap();
        let mut locked = connection.begin().await.unwrap();
        sqlx::query("lock table queue.done in exclusive mode").execute(&mut *locked).await.unwrap();
        tokio::time::sleep(Duration::from_millis(700)).await;
        locked.rollback().await.unwrap();
        for job in &jobs[..4] {
            db.until(*job, JobState::Completed).await;
        }
        db.until(jobs[4], JobState::Dead).await;
    })
    .await;
    assert_eq!(effects(&db.pool, jobs[3]).await.unwrap(), 1);
    db.finish().await;
}

/// Job that occupies one of the pool's connections for 700 ms.
#[job(timeout = "20s")]
#[derive(Serialize, Deserialize)]
struct Hog;

impl Handler for Hog {
    async fn run(self, cx: &Context) -> JobResult {
        let _held = cx.pool().acquire().await?;
        tokio::time::sleep(Duration::from_millis(700)).await;
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn f44_a_pool_exhausted_by_handlers_stops_neither_claims_nor_settles_nor_heartbeats() {
    let db = TestDb::new().await;
    let pool = PgPoolOptions::new().max_connections(2).test_before_acquire(false).connect(&db.url).await.unwrap();
    for _ in 0..8 {
        Hog.enqueue(&db.pool).await.unwrap();
    }
    let worker = Worker::new(pool).register::<Hog>().register::<Do>().lease_ttl(Duration::from_secs(1)).concurrency(6);
    db.run_while(worker, async {
        within(Duration::from_secs(20), "all are completed", async || {
            db.count("select count(*) from queue.jobs where state = 'completed' and attempts = 1").await == 8
        })
        .await;
        assert_eq!(db.count("select count(*) from queue.worker").await, 1, "it never lost its identity");
    })
    .await;
    db.finish().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "deep"]
async fn f34_a_postmaster_killed_under_load_loses_no_job_and_workers_continue() {
    let options = EmbeddedOptions { durable: true, ..EmbeddedOptions::temporary() };
    let server = embedded::start(options).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(8).connect(server.url()).await.unwrap();
    migrate(&mut pool.acquire().await.unwrap(), Store::default()).await.unwrap();
    sqlx::query("create table effect (job bigint, attempt int, pid int, at timestamptz default clock_timestamp())")
        .execute(&pool)
        .await
        .unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(pool.clone()).register::<Do>().concurrency(20);
    let worker = tokio::spawn(worker.run(async move {
        let _ = stopped.await;
    }));
    let mut acknowledged: Vec<JobId> = Vec::new();
    for _ in 0..2 {
        for _ in 0..200 {
            // A job whose enqueue was not acknowledged may or may not exist.
            if let Ok(job) = (Do { act: Act::Sleep(5) }).enqueue(&pool).max_attempts(50).await {
                acknowledged.push(job.id());
            }
        }
        let pid_file = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
        let killed = std::process::Command::new("kill").args(["-KILL", pid_file.lines().next().unwrap()]).status().unwrap();
        assert!(killed.success());
        within(Duration::from_secs(20), "the database is back", async || sqlx::query("select 1").execute(&pool).await.is_ok()).await;
    }
    let completed = "select count(*) from queue.jobs where state = 'completed' and id = any ($1)";
    within(Duration::from_secs(40), "all are completed", async || {
        sqlx::query_scalar::<_, i64>(completed)
            .bind(&acknowledged)
            .fetch_one(&pool)
            .await
            .is_ok_and(|jobs| jobs == acknowledged.len() as i64)
    })
    .await;
    assert!(acknowledged.len() > 300, "only {} enqueues were acknowledged", acknowledged.len());
    let _ = stop.send(());
    worker.await.unwrap().unwrap();
    let left: i64 = sqlx::query_scalar("select count(*) from queue.jobs where state <> 'completed'").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0, "nothing is dead or stuck");
    pool.close().await;
}
