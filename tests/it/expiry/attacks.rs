//! Tests expiry sweeps together with concurrent claims, operators and transactions, and with invalid rows and killed processes.

use std::time::Duration;

use queue_core::{Job as _, JobId, OnConflict};
use sqlx::{Connection as _, Executor as _};
use tests::{
    Act, Do, TestDb, WorkerProcess,
    operate::{self, expire_due},
    protocol::{claim, register},
    within,
};

use super::{HOUR, connect, count_entries, delete_entries, expire_now, statements::expire_all_due};

/// Enqueues `jobs` jobs whose expiry time has passed.
async fn many(db: &TestDb, jobs: usize) -> Vec<JobId> {
    let jobs =
        Do::enqueue_all((0..jobs).map(|_| Do { act: Act::Ok(String::new()) }), &db.pool).expires_in(HOUR).returning_ids().await.unwrap();
    let jobs: Vec<JobId> = jobs.into_iter().map(|job| job.id()).collect();
    expire_now(db, &jobs).await;
    jobs
}

async fn expired(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.done where expired").await
}

#[tokio::test]
async fn a_claim_that_arrives_while_a_job_expires_skips_it() {
    let db = TestDb::new().await;
    let (mut on, mut expires) = (connect(&db).await, connect(&db).await);
    many(&db, 3).await;
    let worker = register(&mut on).await.unwrap();
    expires.execute("begin").await.unwrap();
    assert_eq!(expire_due(&mut expires).await.unwrap(), 3);
    assert!(claim(&mut on, worker, 9).await.unwrap().jobs.is_empty());
    assert_eq!(operate::cancel(&mut on, &[]).await.unwrap(), []);
    expires.execute("commit").await.unwrap();
    assert!(claim(&mut on, worker, 9).await.unwrap().jobs.is_empty());
    db.finish().await;
}

#[tokio::test]
async fn of_a_cancel_and_an_expiry_the_first_wins() {
    let db = TestDb::new().await;
    let (mut on, mut other) = (connect(&db).await, connect(&db).await);
    let jobs = many(&db, 4).await;
    other.execute("begin").await.unwrap();
    assert_eq!(operate::cancel(&mut other, &jobs[..2]).await.unwrap().len(), 2);
    assert_eq!(expire_due(&mut on).await.unwrap(), 2);
    other.execute("commit").await.unwrap();
    assert_eq!((expire_all_due(&mut on).await, expired(&db).await), (0, 2));
    assert_eq!(operate::cancel(&mut on, &jobs).await.unwrap(), [], "they have finished");
    assert_eq!(db.count("select count(*) from queue.expiry").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn an_extended_expiry_is_not_overtaken_by_a_sweep() {
    let db = TestDb::new().await;
    let (mut on, mut other) = (connect(&db).await, connect(&db).await);
    let unique = || Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).unique("u").expires_in(HOUR);
    let job = unique().await.unwrap().id();
    // The open transaction enqueues under the same uniqueness key. For a ready job, it deletes the job's row in `ready`
    // and inserts it again. For a scheduled job, it only locks the row in `scheduled`.
    for step in ["ready", "scheduled"] {
        if step == "scheduled" {
            assert_eq!(operate::reschedule(&mut on, &[job]).await.unwrap(), [job]);
        }
        expire_now(&db, &[job]).await;
        let mut tx = other.begin().await.unwrap();
        let again = Do { act: Act::Ok("fresh".into()) }.enqueue(&mut tx).unique("u").expires_in(HOUR).on_conflict(OnConflict::Replace);
        assert_eq!(again.await.unwrap().id(), job);
        assert_eq!(expire_due(&mut on).await.unwrap(), 0, "{step}: its entry is locked");
        tx.commit().await.unwrap();
        assert_eq!(expire_all_due(&mut on).await, 0, "{step}: it has more time now");
        assert_eq!(db.state(job).await.map(|state| state.to_string()).as_deref(), Some(step));
    }
    // A sweep skips a job whose row is locked by a transaction that sets a later expiry time.
    expire_now(&db, &[job]).await;
    let mut tx = other.begin().await.unwrap();
    sqlx::query("select from queue.job where id = $1 for update").bind(job).execute(&mut *tx).await.unwrap();
    sqlx::query("select queue.set_expiry($1, now() + interval '1 hour')").bind(job).execute(&mut *tx).await.unwrap();
    assert_eq!(expire_due(&mut on).await.unwrap(), 0);
    tx.commit().await.unwrap();
    assert_eq!(expire_all_due(&mut on).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn one_job_with_bad_rows_stops_no_other_and_is_reported() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let jobs = many(&db, 9).await;
    let statement = "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now(), 1, 1)";
    sqlx::query(statement).bind(jobs[4]).execute(&mut on).await.unwrap();
    let (expired, refused): (Vec<JobId>, Vec<JobId>) =
        sqlx::query_as("select expired, refused from queue.expire_due('-infinity', 100)").fetch_one(&mut on).await.unwrap();
    assert_eq!((expired.len(), refused), (8, vec![jobs[4]]));
    assert_eq!(count_entries(&db, jobs[4]).await, 1, "it may be mended");
    sqlx::query("delete from queue.done where id = $1").bind(jobs[4]).execute(&mut on).await.unwrap();
    assert_eq!(expire_all_due(&mut on).await, 1);
    // A job that a user's trigger rejects does not stop the sweep either.
    let jobs = many(&db, 9).await;
    let trigger = format!(
        "create function no() returns trigger language plpgsql as 'begin raise exception $m$no$m$; end';
         create trigger no before insert on queue.done for each row when (new.id = {}) execute function no()",
        jobs[4].0
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&mut on).await.unwrap();
    let (expired, refused): (Vec<JobId>, Vec<JobId>) =
        sqlx::query_as("select expired, refused from queue.expire_due('-infinity', 100)").fetch_one(&mut on).await.unwrap();
    assert_eq!((expired.len(), refused), (8, vec![jobs[4]]));
    db.finish().await;
}

#[tokio::test]
async fn a_process_killed_during_a_sweep_leaves_no_partial_expiry() {
    let db = TestDb::new().await;
    let jobs = many(&db, 50).await;
    let (mut victim, mut on) = (connect(&db).await, connect(&db).await);
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut victim).await.unwrap();
    victim.execute("begin").await.unwrap();
    assert_eq!(expire_due(&mut victim).await.unwrap(), 50);
    sqlx::query("select pg_terminate_backend($1, 10000)").bind(pid).execute(&mut on).await.unwrap();
    assert_eq!(expire_due(&mut on).await.unwrap(), jobs.len() as i64);
    db.finish().await;
}

#[tokio::test]
async fn an_operators_open_transaction_delays_no_other_expiry() {
    let db = TestDb::new().await;
    let mut session = connect(&db).await;
    session.execute("begin isolation level repeatable read").await.unwrap();
    session.execute("select count(*) from queue.ready").await.unwrap();
    many(&db, 3000).await;
    db.run_while(db.worker(), within(Duration::from_mins(2), "all have expired", async || expired(&db).await == 3000)).await;
    session.close().await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn tens_of_thousands_due_at_the_same_time_delay_no_other_work() {
    let db = TestDb::new().await;
    many(&db, 30_000).await;
    let quick = || Do { act: Act::Ok(String::new()) };
    let job = quick().enqueue(&db.pool).priority(150).await.unwrap();
    let later = quick().enqueue(&db.pool).priority(150).after(Duration::from_millis(1)).await.unwrap();
    let left = db
        .run_while(db.worker(), async {
            job.wait(&db.queue()).await.unwrap();
            later.wait(&db.queue()).await.unwrap();
            let left = 30_000 - expired(&db).await;
            within(Duration::from_mins(2), "all have expired", async || expired(&db).await == 30_000).await;
            left
        })
        .await;
    assert!(left > 0, "both had finished before the last of those that expired");
    assert_eq!(db.count("select count(*) from effect").await, 2);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn workers_that_are_killed_let_no_job_begin_late_and_none_expire_twice() {
    let db = TestDb::new().await;
    let start = || WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("TTL_MS", "1000")]);
    let jobs = many(&db, 4000).await;
    // Only claims can find the jobs without an expiry entry.
    sqlx::query("delete from queue.expiry where id % 2 = 0").execute(&db.pool).await.unwrap();
    let mut begun = 0;
    while begun < 3 {
        let worker = start();
        let before = expired(&db).await;
        within(Duration::from_mins(1), "some expire", async || expired(&db).await > before || before == 4000).await;
        drop(worker);
        begun += 1;
    }
    let last = start();
    let finished = "select count(*) from queue.jobs where state in ('expired', 'completed')";
    within(Duration::from_mins(2), "all have finished", async || db.count(finished).await == jobs.len() as i64).await;
    // A job that a killed worker had claimed counts as started, so it does not expire.
    let late = "select count(*) from effect e join queue.job j on j.id = e.job join queue.done d on d.id = j.id where d.expired";
    assert_eq!(db.count(late).await, 0, "what has expired has not run");
    let fresh = "select count(*) from queue.done_many m cross join lateral unnest(m.ids)";
    assert_eq!(db.count(fresh).await, 0, "none completed at its first attempt");
    drop(last);
    db.finish().await;
}

#[tokio::test]
async fn a_worker_and_a_sweep_of_the_same_jobs_end_each_once() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let jobs = many(&db, 3000).await;
    let sweep = async {
        while expired(&db).await < jobs.len() as i64 {
            expire_due(&mut on).await.unwrap();
        }
    };
    db.run_while(db.worker(), sweep).await;
    assert_eq!(db.count("select count(*) from effect").await, 0);
    delete_entries(&db).await;
    db.finish().await;
}
