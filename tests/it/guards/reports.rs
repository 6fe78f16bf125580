//! Tests the statements that write and delete progress reports. Like a verdict, a report is accepted only while its lease contains the
//! job. A report is deleted only if it is unchanged since its job was found to be finished. Also tests the statements for waiters.

use queue_core::{JobId, Store};
use sqlx::Connection as _;
use tests::{
    TestDb, eventually,
    protocol::{claim, clear_progress, note, note_all, register, settle},
};
use uuid::Uuid;

use super::{
    connect, enqueue,
    order::{locks_in_order, turn},
};

async fn stages(db: &TestDb) -> Vec<(JobId, i16, String)> {
    sqlx::query_as("select id, attempt, stage from queue.progress order by id").fetch_all(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_later_report_keeps_the_checkpoint_and_names_its_time_and_worker() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    enqueue(&mut on, &["default"]).await;
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    assert!(note(&mut on, lease.token, lease.jobs[0], "kept").await.unwrap());
    sqlx::query("update queue.progress set updated_at = now() - interval '1 hour', attempt = 0").execute(&mut on).await.unwrap();
    assert!(note(&mut on, lease.token, lease.jobs[0], "").await.unwrap());
    let right = "select count(*) from queue.progress where checkpoint = '\"kept\"' and stage = '' and attempt = 1 and updated_at > now() - interval '1 minute'";
    assert_eq!(db.count(right).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_report_waits_for_the_verdict_that_is_being_written_and_for_no_other() {
    let db = TestDb::new().await;
    let (mut on, mut zombie) = (connect(&db).await, connect(&db).await);
    enqueue(&mut on, &["default"; 2]).await;
    let worker = register(&mut on).await.unwrap();
    let (lease, other) = (claim(&mut on, worker, 1).await.unwrap(), claim(&mut on, worker, 1).await.unwrap());
    let mut settling = on.begin().await.unwrap();
    assert_eq!(settle(&mut settling, &lease.all("retry")).await.unwrap(), []);
    sqlx::query("set lock_timeout = '10s'").execute(&mut zombie).await.unwrap();
    assert!(note(&mut zombie, other.token, other.jobs[0], "beside it").await.unwrap());
    let waiting = async {
        eventually("it waits", async || {
            db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
        })
        .await;
        settling.commit().await.unwrap();
    };
    let (accepted, ()) = tokio::join!(note(&mut zombie, lease.token, lease.jobs[0], "too late"), waiting);
    assert!(!accepted.unwrap());
    db.finish().await;
}

#[tokio::test]
async fn reports_lock_leases_in_the_order_of_their_tokens() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    enqueue(&mut on, &["default"; 2]).await;
    let worker = register(&mut on).await.unwrap();
    let leases = [claim(&mut on, worker, 1).await.unwrap(), claim(&mut on, worker, 1).await.unwrap()];
    turn(&mut on, "lease", "token").await;
    let reports = leases.map(|lease| (lease.token, lease.jobs[0], "here"));
    locks_in_order(&db, "select from queue.lease order by token", async |on| assert_eq!(note_all(on, &reports).await.unwrap().len(), 2))
        .await;
    db.finish().await;
}

#[tokio::test]
async fn a_jobs_reports_are_cleared_once_it_has_finished_and_never_before() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let jobs = enqueue(&mut on, &["default"; 6]).await;
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 6).await.unwrap();
    for job in &lease.jobs {
        assert!(note(&mut on, lease.token, *job, "said").await.unwrap());
    }
    // The first and the third job share a row of history, whose id range includes the second job.
    let verdicts = ["plain", "retry", "plain", "cancel", "forget"];
    let settled: Vec<_> = verdicts.into_iter().enumerate().map(|(at, verdict)| lease.one(at, verdict)).collect();
    assert_eq!(settle(&mut on, &settled).await.unwrap(), []);
    assert_eq!(clear_progress(&mut on, &jobs[..1]).await.unwrap(), 1);
    assert_eq!(stages(&db).await.len(), 5, "those that were not named are left");
    assert_eq!(clear_progress(&mut on, &jobs).await.unwrap(), 3);
    let left: Vec<JobId> = stages(&db).await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(left, [jobs[1], jobs[5]], "one waits for its retry, one runs");
    db.finish().await;
}

#[tokio::test]
async fn reports_of_an_attempt_while_its_job_is_requeued_are_not_cleared() {
    let db = TestDb::new().await;
    let (mut on, mut other) = (connect(&db).await, connect(&db).await);
    let jobs = enqueue(&mut on, &["default"]).await;
    let worker = register(&mut on).await.unwrap();
    let lease = claim(&mut on, worker, 1).await.unwrap();
    assert!(note(&mut on, lease.token, lease.jobs[0], "before").await.unwrap());
    assert_eq!(settle(&mut on, &lease.all("complete")).await.unwrap(), []);
    // The next attempt's report is uncommitted while the deletion runs. The deletion still sees the job as completed.
    let mut reporting = other.begin().await.unwrap();
    sqlx::query("update queue.progress set updated_at = clock_timestamp(), stage = 'after'").execute(&mut *reporting).await.unwrap();
    sqlx::query("set lock_timeout = '2s'").execute(&mut on).await.unwrap();
    assert_eq!(clear_progress(&mut on, &jobs).await.unwrap(), 0);
    reporting.commit().await.unwrap();
    assert_eq!(stages(&db).await, [(jobs[0], 1, "after".to_owned())]);
    db.finish().await;
}

#[tokio::test]
async fn the_row_of_a_waiter_lasts_a_minute_from_its_last_renewal_and_is_its_own() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let store = Store::default();
    let (mine, other) = (Uuid::new_v4(), Uuid::new_v4());
    let announce = store.sql(include_str!("../../../queue-core/sql/announce_waiter.sql"));
    let leave = store.sql(include_str!("../../../queue-core/sql/leave_waiter.sql"));
    let prune = store.sql(include_str!("../../../queue-worker/sql/prune_waiters.sql"));
    let lives = "select count(*) from queue.waiter where expires_at > now() + interval '50 s'";
    for id in [mine, other] {
        sqlx::query(announce).bind(id).execute(&mut on).await.unwrap();
    }
    assert_eq!(db.count(lives).await, 2);
    sqlx::query("update queue.waiter set expires_at = now() - interval '1 s'").execute(&mut on).await.unwrap();
    sqlx::query(announce).bind(mine).execute(&mut on).await.unwrap();
    assert_eq!(db.count(lives).await, 1);
    sqlx::query(prune).execute(&mut on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.waiter").await, 1);
    sqlx::query(leave).bind(other).execute(&mut on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.waiter").await, 1);
    sqlx::query(leave).bind(mine).execute(&mut on).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.waiter").await, 0);
    db.finish().await;
}
