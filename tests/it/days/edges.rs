//! Tests the boundaries of day partitions, locks that delay their creation, and a job that is reopened while its partition is dropped.

use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually, operate};

use super::{DONE_LONG_AGO, add_days, connect, days, drop_day, make_past_day, past_job};

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned()
}

async fn in_zone(db: &TestDb, zone: &str) -> PgConnection {
    let mut on = connect(db).await;
    sqlx::query("select set_config('timezone', $1, false)").bind(zone).execute(&mut on).await.unwrap();
    on
}

/// Two time zones. At any time of day, the date in at least one zone differs from the UTC date.
const ZONES: [&str; 2] = ["Etc/GMT+12", "Etc/GMT-14"];

#[tokio::test]
async fn days_are_created_in_utc_regardless_of_the_sessions_time_zone() {
    let db = TestDb::new().await;
    let last = "select ((now() at time zone 'UTC')::date - date '2000-01-01') + $1";
    for (zone, ahead) in ZONES.into_iter().zip([10, 14]) {
        let mut on = in_zone(&db, zone).await;
        let before: i32 = sqlx::query_scalar(last).bind(ahead).fetch_one(&mut on).await.unwrap();
        add_days(&mut on, ahead).await;
        let after: i32 = sqlx::query_scalar(last).bind(ahead).fetch_one(&mut on).await.unwrap();
        let made = "select to_date(right($1, 8), 'YYYYMMDD') - date '2000-01-01'";
        let made: i32 = sqlx::query_scalar(made).bind(days(&db).await.pop()).fetch_one(&mut on).await.unwrap();
        assert!((before..=after).contains(&made), "{zone}: {made} is not within {before} and {after}");
    }
    let wrong = "select count(*) from (
        select pg_get_expr(c.relpartbound, c.oid) as bound, to_date(right(c.relname, 8), 'YYYYMMDD') as day
        from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'queue.job'::regclass and c.relname <> 'job_default'
      ) d where bound <> format('FOR VALUES FROM (%L) TO (%L)', queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'))";
    assert_eq!(db.count(wrong).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_day_ends_in_utc_regardless_of_the_sessions_time_zone() {
    for (zone, hours, dropped) in [(ZONES[0], 1.0, true), (ZONES[1], -1.0, false)] {
        let db = TestDb::new().await;
        make_past_day(&db.pool, 9).await;
        let day = days(&db).await.remove(0);
        let mut on = in_zone(&db, zone).await;
        let since =
            "select extract(epoch from clock_timestamp() - (to_date(right($1, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC')::float8";
        let since: f64 = sqlx::query_scalar(since).bind(day).fetch_one(&mut on).await.unwrap();
        // A day is dropped only if the retention period begins after the end of the day in UTC. The period begins one hour after the end
        // in the first case, and one hour before the end in the second case.
        assert_eq!(drop_day(&mut on, (since - hours * 3600.0) / 86_400.0).await.unwrap(), dropped, "{zone}");
        db.finish().await;
    }
}

#[tokio::test]
async fn while_the_default_partition_is_being_read_days_are_created_later() {
    let db = TestDb::new().await;
    let (mut reader, mut on) = (connect(&db).await, connect(&db).await);
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("select from queue.job_default").execute(&mut *reading).await.unwrap();
    sqlx::query("set statement_timeout = '30s'").execute(&mut on).await.unwrap();
    let refused = sqlx::query("select queue.add_days(9)").execute(&mut on).await.unwrap_err();
    assert_eq!(code(&refused), "55P03", "{refused}");
    reading.rollback().await.unwrap();
    assert!(add_days(&mut on, 9).await >= 2);
    db.finish().await;
}

#[tokio::test]
async fn without_a_day_none_is_dropped() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    while drop_day(&mut on, -30.0).await.unwrap() {}
    assert_eq!(days(&db).await, [] as [String; 0]);
    let job = past_job(&db.pool, 9, DONE_LONG_AGO).await;
    assert!(!drop_day(&mut on, 7.0).await.unwrap());
    assert!(db.state(job).await.is_some());
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_is_brought_back_while_its_day_is_dropped_is_kept() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 9).await;
    let (mut operator, mut dropper) = (connect(&db).await, connect(&db).await);
    // Let the drop wait for the operator instead of timing out.
    sqlx::query("alter function queue.drop_day set lock_timeout = '60s'").execute(&db.pool).await.unwrap();
    let jobs = [past_job(&db.pool, 9, DONE_LONG_AGO).await, past_job(&db.pool, 9, DONE_LONG_AGO).await];
    let mut tx = operator.begin().await.unwrap();
    assert!(operate::reopen(&mut tx, jobs[0]).await.unwrap());
    let dropping = tokio::spawn(async move { drop_day(&mut dropper, 7.0).await });
    eventually("it waits for the operator", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
    })
    .await;
    tx.commit().await.unwrap();
    assert!(dropping.await.unwrap().unwrap());
    assert_eq!(db.state(jobs[0]).await, Some(queue_core::JobState::Ready));
    assert_eq!(db.state(jobs[1]).await, None);
    db.finish().await;
}
