//! Tests which processes are notified. A missing notification only delays a sleeping worker until its next poll, so no test of a worker
//! would detect it.

use std::time::Duration;

use queue_core::{Job as _, JobId};
use sqlx::{
    AssertSqlSafe,
    postgres::{PgListener, PgNotification},
};
use tests::{Act, Do, TestDb, operate, protocol};

use super::connect;

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Listens for wake-ups. If `asleep`, also writes an idle row for the queue `default`.
async fn listen(db: &TestDb, asleep: bool) -> PgListener {
    let listener = db.listen("wake").await;
    sqlx::query("insert into queue.idle select 'default', gen_random_uuid() where $1").bind(asleep).execute(&db.pool).await.unwrap();
    listener
}

/// Returns the notifications that arrived since the last call. Notifications arrive in commit order, so the marker sent by this function
/// arrives last.
async fn received(db: &TestDb, listener: &mut PgListener) -> Vec<String> {
    sqlx::query("select queue.notify('wake', 'that was all')").execute(&db.pool).await.unwrap();
    let mut payloads = Vec::new();
    loop {
        let notification = tokio::time::timeout(Duration::from_secs(30), listener.recv()).await.unwrap();
        match notification.as_ref().map(PgNotification::payload).unwrap() {
            "that was all" => return payloads,
            payload => payloads.push(payload.to_owned()),
        }
    }
}

const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn a_sleeping_worker_is_notified_of_a_job_changed_by_another_enqueue_of_its_key() {
    for asleep in [true, false] {
        let db = TestDb::new().await;
        quick().enqueue(&db.pool).unique("a").await.unwrap();
        let mut listener = listen(&db, asleep).await;
        let mut tx = db.pool.begin().await.unwrap();
        quick().enqueue(&mut tx).unique("a").await.unwrap();
        assert_eq!(received(&db, &mut listener).await, NOTHING, "not before the commit");
        tx.commit().await.unwrap();
        assert_eq!(received(&db, &mut listener).await, if asleep { &["default"][..] } else { &NOTHING });
        db.finish().await;
    }
}

#[tokio::test]
async fn a_sleeping_worker_is_notified_when_a_key_continues_without_its_head() {
    for asleep in [true, false] {
        let db = TestDb::new().await;
        let mut jobs = Vec::new();
        for _ in 0..3 {
            jobs.push(quick().enqueue(&db.pool).key("a").await.unwrap().id());
        }
        let plain = quick().enqueue(&db.pool).await.unwrap().id();
        let mut listener = listen(&db, asleep).await;
        let cancel = async |job: JobId| operate::cancel(&mut connect(&db).await, &[job]).await.unwrap().len();
        assert_eq!([cancel(jobs[2]).await, cancel(plain).await, cancel(plain).await], [1, 1, 0]);
        assert_eq!(received(&db, &mut listener).await, NOTHING, "the key is where it was");
        assert_eq!(cancel(jobs[0]).await, 1);
        assert_eq!(received(&db, &mut listener).await, if asleep { &["#"][..] } else { &NOTHING });
        db.finish().await;
    }
}

#[tokio::test]
async fn a_sleeping_worker_is_notified_of_a_keyed_job_at_its_enqueue_and_at_its_turn() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let mut listener = listen(&db, true).await;
    quick().enqueue(&db.pool).key("a").await.unwrap();
    assert_eq!(received(&db, &mut listener).await, ["default"]);
    quick().enqueue(&db.pool).key("a").await.unwrap();
    assert_eq!(received(&db, &mut listener).await, ["#"], "the promoter of keys");
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 0);
    assert_eq!(received(&db, &mut listener).await, NOTHING);
    let worker = protocol::register(&mut on).await.unwrap();
    let lease = protocol::claim(&mut on, worker, 1).await.unwrap();
    assert_eq!(protocol::settle(&mut on, &lease.all("plain")).await.unwrap(), []);
    assert_eq!(operate::unblock(&mut on).await.unwrap(), 1);
    assert_eq!(received(&db, &mut listener).await, ["default"]);
    db.finish().await;
}

#[tokio::test]
async fn a_sleeping_worker_is_notified_of_changed_times_and_priorities_and_all_workers_of_cancellations() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = quick().enqueue(&db.pool).await.unwrap().id();
    let elsewhere = quick().enqueue(&db.pool).queue("other").after(Duration::from_hours(1)).await.unwrap().id();
    let mut listener = listen(&db, true).await;
    assert_eq!(operate::reschedule(&mut on, &[job, elsewhere]).await.unwrap().len(), 2);
    assert_eq!(received(&db, &mut listener).await, ["default"]);
    assert_eq!(operate::set_priority(&mut on, &[job, elsewhere], 7).await.unwrap().len(), 2);
    assert_eq!(received(&db, &mut listener).await, ["default"]);
    assert_eq!(operate::run_now(&mut on, &[elsewhere]).await.unwrap(), [elsewhere]);
    assert_eq!(received(&db, &mut listener).await, NOTHING, "no worker of that queue sleeps");
    assert_eq!(operate::run_now(&mut on, &[job, elsewhere]).await.unwrap(), [job]);
    assert_eq!(received(&db, &mut listener).await, ["default"]);
    assert_eq!(operate::cancel_running(&mut on, &[job]).await.unwrap(), []);
    assert_eq!(received(&db, &mut listener).await, NOTHING, "it does not run");
    let worker = protocol::register(&mut on).await.unwrap();
    protocol::claim(&mut on, worker, 2).await.unwrap();
    sqlx::raw_sql("delete from queue.idle").execute(&mut on).await.unwrap();
    assert_eq!(operate::cancel_running(&mut on, &[job]).await.unwrap(), [job]);
    assert_eq!(received(&db, &mut listener).await, ["!control"], "its holder is awake");
    db.finish().await;
}

/// A cancelled job causes a notification only if processes are waiting.
#[tokio::test]
async fn a_waiter_is_notified_of_a_cancelled_job() {
    for (expires, is_notified) in [("1 minute", true), ("-1 second", false)] {
        let db = TestDb::new().await;
        let job = quick().enqueue(&db.pool).await.unwrap().id();
        let mut listener = listen(&db, false).await;
        let channel: String = sqlx::query_scalar("select queue.channel('over')").fetch_one(&db.pool).await.unwrap();
        listener.listen(&channel).await.unwrap();
        let waiter = format!("insert into queue.waiter (id, expires_at) values (gen_random_uuid(), now() + interval '{expires}')");
        sqlx::raw_sql(AssertSqlSafe(waiter)).execute(&db.pool).await.unwrap();
        assert_eq!(operate::cancel(&mut connect(&db).await, &[job]).await.unwrap(), [job]);
        assert_eq!(received(&db, &mut listener).await, if is_notified { &[""][..] } else { &NOTHING });
        assert_eq!(operate::cancel(&mut connect(&db).await, &[job]).await.unwrap(), []);
        assert_eq!(received(&db, &mut listener).await, NOTHING, "it was cancelled before");
        db.finish().await;
    }
}
