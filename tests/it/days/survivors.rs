//! Tests day partitions that many jobs outlive, and day partitions that cannot be created or dropped.

use queue_core::{JobId, JobState};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::{TestDb, operate, protocol::register};

use super::{DEAD, DONE_LATELY, DONE_LONG_AGO, READY, RUNNING, SCHEDULED, add_days, connect, days, drop_day, make_past_day, past_job};

/// Drops a day partition as a worker does. A day that more than `most` jobs outlive is not dropped. If more than `days` days are past the
/// retention, `at_most` replaces `most` for the oldest day.
async fn drop_with(on: &mut PgConnection, most: i32, days: i32, at_most: i32) -> bool {
    let dropped = "select queue.drop_day('7 days', $1, $2, $3) is not null";
    sqlx::query_scalar(dropped).bind(most).bind(days).bind(at_most).fetch_one(on).await.unwrap()
}

async fn thin(on: &mut PgConnection) {
    operate::prune_days(on, 7.0, 4).await.unwrap();
}

#[tokio::test]
async fn f71_a_day_that_many_jobs_outlive_is_not_touched_and_no_session_waits_for_it() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    make_past_day(&db.pool, 9).await;
    let many = "with j as (
        insert into queue.job (id, lane, max_attempts, payload)
        select queue.id_at(((now() at time zone 'UTC')::date - 9 + time '12:00') at time zone 'UTC') + n,
          queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{}'
        from generate_series(1, 20000) n
        returning id, lane)
      insert into queue.scheduled (run_at, id, lane) select now() + interval '1 year', id, lane from j";
    sqlx::query(many).execute(&mut on).await.unwrap();
    let mut dropping = on.begin().await.unwrap();
    assert!(!drop_day(&mut dropping, 7.0).await.unwrap());
    let locks = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation
      where l.pid = pg_backend_pid() and c.relnamespace = 'queue'::regnamespace and l.mode not in ('AccessShareLock', 'RowShareLock')";
    assert_eq!(sqlx::query_scalar::<_, i64>(locks).fetch_one(&mut *dropping).await.unwrap(), 0, "no session waits for it");
    dropping.commit().await.unwrap();
    assert_eq!(
        db.count("select count(*) from queue.scheduled s join queue.job j using (id) where j.tableoid <> 'queue.job_default'::regclass")
            .await,
        20_000
    );
    db.finish().await;
}

#[tokio::test]
async fn a_day_stays_while_too_many_of_its_jobs_are_unfinished_in_any_state() {
    const PARKED: &str = "insert into queue.parked (id, lane, attempts, crashes, since, names)
       select id, lane, 0, 0, now(), '{go}' from queue.job where id = $1";
    const BLOCKED: &str =
        "insert into queue.blocked (key, seq, id, lane) select 1, queue.next_key(), id, lane from queue.job where id = $1";
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    register(&mut on).await.unwrap();
    for (entry, day) in [READY, SCHEDULED, PARKED, RUNNING, DEAD, BLOCKED].into_iter().zip(9..) {
        make_past_day(&db.pool, day).await;
        for _ in 0..3 {
            past_job(&db.pool, day, entry).await;
        }
        let dropped = [drop_with(&mut on, 2, 100, 2).await, drop_with(&mut on, 3, 100, 3).await];
        assert_eq!([false, true], dropped, "{entry}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_day_stays_until_it_is_nearly_empty_and_its_finished_jobs_are_pruned_before() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    make_past_day(&db.pool, 9).await;
    make_past_day(&db.pool, 8).await;
    let mut stay = Vec::new();
    for entry in [READY, SCHEDULED, DEAD, DONE_LATELY] {
        stay.push(past_job(&db.pool, 9, entry).await);
    }
    let mut finished = Vec::new();
    for _ in 0..10 {
        finished.push(past_job(&db.pool, 9, DONE_LONG_AGO).await);
    }
    let plain = "insert into queue.done_many select $1, $1, now() - interval '9 days', 1, array[$1]";
    finished.push(past_job(&db.pool, 9, plain).await);
    let recent = past_job(&db.pool, 3, DONE_LONG_AGO).await;
    let before = days(&db).await;
    assert!(drop_with(&mut on, 3, 30, 30).await, "the day after it, which is empty");
    assert_eq!(days(&db).await, [&before[..1], &before[2..]].concat());
    assert!(!drop_with(&mut on, 3, 30, 30).await);
    thin(&mut on).await;
    for job in &finished {
        assert_eq!(db.state(*job).await, None);
    }
    let left = "select count(*) from queue.failure where id = any ($1)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).bind(&finished).fetch_one(&mut on).await.unwrap(), 0, "with their failures");
    let kept = [JobState::Ready, JobState::Scheduled, JobState::Dead, JobState::Completed];
    for (job, state) in stay.iter().zip(kept) {
        assert_eq!(db.state(*job).await, Some(state));
    }
    assert_eq!(db.state(recent).await, Some(JobState::Completed), "of a day that has not ended");
    operate::discard(&mut on, &stay[2..3]).await.unwrap();
    assert!(drop_with(&mut on, 3, 30, 30).await, "nearly empty");
    for (job, state) in stay.iter().zip(kept).filter(|(job, _)| **job != stay[2]) {
        assert_eq!(db.state(*job).await, Some(state));
    }
    db.finish().await;
}

#[tokio::test]
async fn in_a_day_that_stays_each_type_is_kept_for_its_own_time() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    make_past_day(&db.pool, 9).await;
    past_job(&db.pool, 9, SCHEDULED).await;
    let plain = "insert into queue.done_many select id, id, now() - interval '9 days', lane, array[id] from queue.job where id = $1";
    let kept = [past_job(&db.pool, 9, DONE_LONG_AGO).await, past_job(&db.pool, 9, plain).await];
    sqlx::query("insert into queue.retention (job_type, history) values ('do', '30 days')").execute(&mut on).await.unwrap();
    thin(&mut on).await;
    for job in kept {
        assert_eq!(db.state(job).await, Some(JobState::Completed));
    }
    let mut holder = connect(&db).await;
    sqlx::query("delete from queue.retention").execute(&mut on).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    sqlx::query("select from queue.done where id = $1 for update").bind(kept[0]).execute(&mut *held).await.unwrap();
    sqlx::query("select from queue.done_many where first_id = $1 for update").bind(kept[1]).execute(&mut *held).await.unwrap();
    sqlx::query("set lock_timeout = '2s'").execute(&mut on).await.unwrap();
    thin(&mut on).await;
    for job in kept {
        assert_eq!(db.state(job).await, Some(JobState::Completed), "another session has it locked");
    }
    held.rollback().await.unwrap();
    thin(&mut on).await;
    for job in kept {
        assert_eq!(db.state(job).await, None);
    }
    db.finish().await;
}

#[tokio::test]
async fn of_too_many_days_that_stay_the_oldest_goes_unless_too_many_outlive_it() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let mut jobs: Vec<JobId> = Vec::new();
    for days_ago in [12, 11] {
        make_past_day(&db.pool, days_ago).await;
        for _ in 0..4 {
            jobs.push(past_job(&db.pool, days_ago, SCHEDULED).await);
        }
    }
    let before = days(&db).await;
    assert!(!drop_with(&mut on, 1, 2, 4).await, "two may stay");
    assert!(!drop_with(&mut on, 1, 1, 3).await, "too many outlive it");
    assert!(drop_with(&mut on, 1, 1, 4).await);
    assert_eq!(days(&db).await, before[1..], "the oldest");
    assert!(!drop_with(&mut on, 1, 1, 4).await, "one may stay");
    for job in jobs {
        assert_eq!(db.state(job).await, Some(JobState::Scheduled));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_day_that_cannot_be_dropped_stops_no_other() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for days_ago in [12, 11, 10] {
        make_past_day(&db.pool, days_ago).await;
    }
    let past = days(&db).await[..3].to_vec();
    // A user's view depends on the `job` partition of the first day. The second day has no `failure` partition.
    let view = format!("create view public.report as select * from queue.{}", past[0]);
    sqlx::raw_sql(AssertSqlSafe(view)).execute(&mut on).await.unwrap();
    let part = format!("drop table queue.{}", past[1].replace("job_", "failure_"));
    sqlx::raw_sql(AssertSqlSafe(part)).execute(&mut on).await.unwrap();
    let odd = "create table queue.job_00000000 partition of queue.job for values from (1) to (2)";
    sqlx::raw_sql(odd).execute(&mut on).await.unwrap();
    assert!(drop_day(&mut on, 7.0).await.unwrap());
    let after = days(&db).await;
    assert!(after.contains(&past[0]) && after.contains(&past[1]) && !after.contains(&past[2]), "{after:?}");
    assert!(!drop_day(&mut on, 7.0).await.unwrap());
    db.finish().await;
}

#[tokio::test]
async fn a_day_that_cannot_be_created_stops_no_other() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let name = |ahead: i32| format!("(select queue.day_name((now() at time zone 'UTC')::date + {ahead}))");
    let ninth: String = sqlx::query_scalar(AssertSqlSafe(format!("select {}", name(9)))).fetch_one(&mut on).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create table queue.done_{ninth} ()"))).execute(&mut on).await.unwrap();
    let tenth = "do $$ declare day date := (now() at time zone 'UTC')::date + 10; begin
       execute format('create table queue.by_hand partition of queue.failure for values from (%s) to (%s)',
         queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
     end $$";
    sqlx::raw_sql(tenth).execute(&mut on).await.unwrap();
    assert!((2..=3).contains(&add_days(&mut on, 11).await), "the eighth and the eleventh");
    let made = days(&db).await;
    let eleventh: String = sqlx::query_scalar(AssertSqlSafe(format!("select 'job_' || {}", name(11)))).fetch_one(&mut on).await.unwrap();
    assert!(made.contains(&eleventh) && !made.contains(&format!("job_{ninth}")), "{made:?}");
    db.finish().await;
}

#[tokio::test]
async fn without_a_retention_no_day_is_dropped() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 9).await;
    let before = days(&db).await;
    let refused = sqlx::query("select queue.drop_day(null)").execute(&db.pool).await.unwrap_err();
    let refused = refused.as_database_error().unwrap();
    assert_eq!(refused.code().as_deref(), Some("22004"), "{refused}");
    assert_eq!(days(&db).await, before);
    db.finish().await;
}
