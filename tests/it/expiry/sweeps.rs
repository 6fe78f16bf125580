//! Tests which jobs a sweep checks again, how often, and when.

use queue_core::{Batch, Job as _};
use sqlx::PgConnection;
use tests::{
    Act, Do, TestDb,
    operate::{self, expire_due},
    protocol::{claim, register},
};

use super::{HOUR, connect, count_entries, expire_now, ok};

async fn run(on: &mut PgConnection, text: &'static str) {
    sqlx::raw_sql(text).execute(on).await.unwrap();
}

#[tokio::test]
async fn no_sweep_checks_jobs_that_have_begun_in_any_state() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let (tried, crashed, put_off) = (ok(&db).await, ok(&db).await, ok(&db).await);
    operate::reschedule(&mut on, &[put_off]).await.unwrap();
    run(&mut on, "update queue.scheduled set crashes = 1").await;
    let worker = register(&mut on).await.unwrap();
    for (job, change) in [(tried, "update queue.lease set attempts = '{2}'"), (crashed, "update queue.lease set crashes = '{1}'")] {
        assert_eq!(claim(&mut on, worker, 1).await.unwrap().ids(), [job]);
        run(&mut on, change).await;
        expire_now(&db, &[job, put_off]).await;
        assert_eq!(expire_due(&mut on).await.unwrap(), 0);
        assert_eq!((count_entries(&db, job).await, count_entries(&db, put_off).await), (0, 0));
        run(
            &mut on,
            "delete from queue.lease; insert into queue.done (id, finished_at, ran_ms, attempts)
          select j.id, now(), 0, 1 from queue.job j where not exists (select from queue.unfinished_job l where l.id = j.id)
            and not exists (select from queue.done d where d.id = j.id)",
        )
        .await;
    }
    operate::cancel(&mut on, &[put_off]).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_job_with_an_extended_time_is_left_to_its_later_check() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = ok(&db).await;
    expire_now(&db, &[job]).await;
    sqlx::query("select queue.set_expiry($1, now() + interval '1 h')").bind(job).execute(&mut on).await.unwrap();
    assert_eq!((expire_due(&mut on).await.unwrap(), count_entries(&db, job).await), (0, 1));
    assert_eq!(db.count("select count(*) from queue.expiry where at > now() + interval '30 minutes' and looks = 0").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn after_any_number_of_checks_a_job_is_checked_again_within_minutes() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let job = ok(&db).await;
    let worker = register(&mut on).await.unwrap();
    let held = claim(&mut on, worker, 1).await.unwrap();
    expire_now(&db, &[job]).await;
    // Sets the number of checks to the `smallint` maximum, and adds a second entry for the job. Both entries are due.
    run(&mut on, "update queue.expiry set looks = 32767; insert into queue.expiry (at, id, looks) select at - interval '1 s', id, 32767 from queue.expiry").await;
    assert_eq!(expire_due(&mut on).await.unwrap(), 0, "it runs");
    let later = "select count(*) from queue.expiry where looks = 32767 and at between now() + interval '5 minutes' and now() + interval '6 minutes'";
    assert_eq!((db.count(later).await, count_entries(&db, job).await), (1, 1));
    assert_eq!(tests::protocol::settle(&mut on, &held.all("complete")).await.unwrap(), []);
    db.finish().await;
}

#[tokio::test]
async fn a_lock_on_the_table_of_expiries_stops_only_jobs_that_expire() {
    let db = TestDb::new().await;
    let (mut on, mut holder) = (connect(&db).await, db.pool.begin().await.unwrap());
    sqlx::query("lock table queue.expiry in share mode").execute(&mut *holder).await.unwrap();
    sqlx::query("set lock_timeout = '50ms'").execute(&mut on).await.unwrap();
    let jobs = || [Do { act: Act::Ok("1".to_owned()) }, Do { act: Act::Ok("2".to_owned()) }];
    assert_eq!(Do::enqueue_all(jobs(), &mut on).key("k").meta("a", 1).await.unwrap(), 2);
    assert!(Do::enqueue_all(jobs(), &mut on).expires_in(HOUR).await.unwrap_err().to_string().contains("55P03"));
    holder.rollback().await.unwrap();
    // Jobs in one bulk enqueue can have different expiry times.
    let mut batch = Batch::new();
    for (job, hours) in jobs().into_iter().zip(1..) {
        batch.add(job).unwrap().expires_in(hours * HOUR);
    }
    batch.enqueue(&mut on).await.unwrap();
    let own = "select count(*) from queue.job j join queue.expiry e on e.id = j.id and queue.expiry_text(e.at) = j.system ->> 'expires_at'";
    assert_eq!((db.count(own).await, db.count("select count(distinct at) from queue.expiry").await), (2, 2));
    db.finish().await;
}

#[tokio::test]
async fn an_expiry_time_is_set_per_job_and_may_be_set_again() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let (job, other) = (ok(&db).await, ok(&db).await);
    for _ in 0..2 {
        let set = "select queue.set_expiry($1, date_trunc('hour', now()) + interval '2 h')";
        sqlx::query(set).bind(job).execute(&mut on).await.unwrap();
    }
    assert_eq!((count_entries(&db, job).await, count_entries(&db, other).await), (2, 1), "of each time once");
    assert_eq!(db.count("select count(distinct system) from queue.job").await, 2);
    for wrong in ["update queue.expiry set at = '1969-01-01+00'", "update queue.expiry set at = 'infinity'"] {
        let message = sqlx::query(wrong).execute(&mut on).await.unwrap_err().to_string();
        assert!(message.contains("expiry_at_in_range"), "{message}");
    }
    db.finish().await;
}
