//! Tests day partitions, which are created in advance and dropped when their retention has ended. Also tests jobs that outlive the
//! partition of their day.

mod claims;
mod edges;
mod survivors;

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use queue_core::{Job as _, JobId, JobRef, JobState, Store};
use queue_worker::Config;
use sqlx::{Connection as _, PgConnection, PgPool};
use tests::{
    Act, Do, TestDb, eventually,
    protocol::{claim, flush, register, settle},
};

/// Timeout that exceeds any freeze of the test machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Returns the names of the day partitions of `job`, oldest first, without the default partition.
async fn days(db: &TestDb) -> Vec<String> {
    let names = "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where i.inhparent = 'queue.job'::regclass and c.relname <> 'job_default' order by 1";
    sqlx::query_scalar::<_, String>(names).fetch_all(&db.pool).await.unwrap()
}

async fn add_days(on: &mut PgConnection, ahead: i32) -> i32 {
    sqlx::query_scalar(Store::default().sql(include_str!("../../queue-worker/sql/add_days.sql"))).bind(ahead).fetch_one(on).await.unwrap()
}

async fn drop_day(on: &mut PgConnection, retention_days: f64) -> sqlx::Result<bool> {
    sqlx::query_scalar("select queue.drop_day($1 * interval '1 second') is not null").bind(retention_days * 86_400.0).fetch_one(on).await
}

/// Creates the partitions of a day in the past.
async fn make_past_day(pool: &PgPool, days_ago: i32) {
    let make = "do $$ declare day date := (now() at time zone 'UTC')::date - N; parent text; begin
       foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
         execute format('create table queue.%I partition of queue.%I for values from (%s) to (%s)', parent || '_' || queue.day_name(day), parent,
           queue.id_at(day::timestamp at time zone 'UTC'), queue.id_at((day + 1)::timestamp at time zone 'UTC'));
       end loop;
     end $$";
    sqlx::raw_sql(sqlx::AssertSqlSafe(make.replace('N', &days_ago.to_string()))).execute(pool).await.unwrap();
}

/// Creates a job that was enqueued on a past day and has failed once. The statement `entry` writes the job's state; its parameter `$1` is
/// the job id.
async fn past_job(pool: &PgPool, days_ago: i32, entry: &'static str) -> JobId {
    let job = "with j as (
         insert into queue.job (id, lane, max_attempts, payload)
         select queue.id_at(((now() at time zone 'UTC')::date - $1 + time '12:00') at time zone 'UTC') + nextval('queue.id_seq') % 1000,
           queue.ensure_lane('default', 'do', 100::smallint, false), 3, '{\"act\":{\"Ok\":\"kept\"}}'
         returning id)
       insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now() - interval '9 days', 1, 'once' from j returning id";
    let id: JobId = sqlx::query_scalar(job).bind(days_ago).fetch_one(pool).await.unwrap();
    sqlx::query(entry).bind(id).execute(pool).await.unwrap();
    id
}

const FRESH: &str = "insert into queue.ready (lane, seq, id) select lane, queue.next_id(), id from queue.job where id = $1";
const READY: &str = "insert into queue.ready (lane, seq, id, attempts) select lane, queue.next_id(), id, 1 from queue.job where id = $1";
const SCHEDULED: &str =
    "insert into queue.scheduled (run_at, id, lane, attempts) select now() + interval '1 year', id, lane, 1 from queue.job where id = $1";
const RUNNING: &str = "insert into queue.lease (token, worker, ids, attempts, crashes)
   select gen_random_uuid(), w.id, array[$1], array[1::smallint], array[0::smallint] from queue.worker w limit 1";
const DEAD: &str = "insert into queue.dead (id, died_at, lane, attempts, crashes, error)
   select id, now() - interval '9 days', lane, 1, 0, 'once' from queue.job where id = $1";
const DONE_LATELY: &str =
    "insert into queue.done (id, finished_at, ran_ms, attempts, output) values ($1, now() - interval '1 day', 1, 2, '\"kept\"')";
const DONE_LONG_AGO: &str = "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now() - interval '9 days', 1, 2)";

#[tokio::test]
async fn days_are_created_ahead_once() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let made = days(&db).await;
    assert!(made.len() >= 8, "by the migration: {made:?}");
    let today: String =
        sqlx::query_scalar("select 'job_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')").fetch_one(&db.pool).await.unwrap();
    assert!(made.contains(&today), "{today} is among {made:?}");
    assert!((3..=4).contains(&add_days(&mut connection, 10).await), "the three that were lacking");
    assert_eq!(add_days(&mut connection, 10).await, 0);
    let job = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let table: String =
        sqlx::query_scalar("select tableoid::regclass::text from queue.job where id = $1").bind(job).fetch_one(&db.pool).await.unwrap();
    assert_eq!(table, format!("queue.{today}"), "jobs go to their day");
    db.finish().await;
}

#[tokio::test]
async fn a_day_whose_jobs_are_in_the_default_partition_is_skipped() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    past_job(&db.pool, -9, READY).await;
    let before = days(&db).await;
    assert!((2..=3).contains(&add_days(&mut connection, 10).await), "the eighth and the tenth day");
    let ninth: String = sqlx::query_scalar("select 'job_' || to_char((now() at time zone 'UTC') + interval '9 days', 'YYYYMMDD')")
        .fetch_one(&db.pool)
        .await
        .unwrap();
    let after = days(&db).await;
    assert!(after.len() >= before.len() + 2 && !after.contains(&ninth), "{after:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_day_is_dropped_and_what_outlives_it_is_kept_whole() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let worker = register(&mut connection).await.unwrap();
    make_past_day(&db.pool, 9).await;
    let mut kept = Vec::new();
    for entry in [READY, SCHEDULED, RUNNING, DEAD, DONE_LATELY] {
        kept.push(past_job(&db.pool, 9, entry).await);
    }
    let mut finished = Vec::new();
    for _ in 0..20 {
        finished.push(past_job(&db.pool, 9, DONE_LONG_AGO).await);
    }
    let live = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let recent = past_job(&db.pool, 3, DONE_LONG_AGO).await;
    let before = db.count("select count(*) from queue.jobs").await;
    assert!(!drop_day(&mut connection, 30.0).await.unwrap(), "its retention has not ended");

    assert!(drop_day(&mut connection, 7.0).await.unwrap());
    assert!(!drop_day(&mut connection, 7.0).await.unwrap(), "there was one");
    assert_eq!(db.count("select count(*) from queue.jobs").await, before - 20);
    for id in &finished {
        assert_eq!(db.state(*id).await, None);
    }
    let kept_whole = "select count(*) from queue.job j join queue.failure f using (id)
       where id = any ($1) and payload = '{\"act\":{\"Ok\":\"kept\"}}' and f.error = 'once' and j.tableoid = 'queue.job_default'::regclass";
    assert_eq!(sqlx::query_scalar::<_, i64>(kept_whole).bind(&kept).fetch_one(&db.pool).await.unwrap(), 5);
    let states = [JobState::Ready, JobState::Scheduled, JobState::Running, JobState::Dead, JobState::Completed];
    for (id, state) in kept.iter().zip(states) {
        assert_eq!(db.state(*id).await, Some(state));
    }
    assert_eq!(db.state(live).await, Some(JobState::Ready));
    assert_eq!(db.state(recent).await, Some(JobState::Completed), "another day's");
    assert_eq!(db.count("select count(*) from queue.failure").await, 6);

    // Jobs that outlived the partition of their day can still be claimed and settled.
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    assert_eq!(lease.ids(), [kept[0], live]);
    assert_eq!(settle(&mut connection, &lease.all("complete")).await.unwrap(), []);
    assert_eq!(db.state(kept[0]).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn jobs_completed_together_outlive_their_day_together_and_go_together() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    make_past_day(&db.pool, 9).await;
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(past_job(&db.pool, 9, FRESH).await);
    }
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    assert_eq!(flush(&mut connection, &[], &[lease.token]).await.unwrap(), []);
    JobRef::from_id(jobs[0]).requeue(&mut connection).await.unwrap();
    JobRef::from_id(jobs[5]).requeue(&mut connection).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.done_many").await, 1);

    assert!(drop_day(&mut connection, 7.0).await.unwrap());
    let kept = [&[JobState::Ready][..], &[JobState::Completed; 4], &[JobState::Ready]].concat();
    for (job, state) in jobs.iter().zip(kept) {
        assert_eq!(db.state(*job).await, Some(state));
    }
    db.check_invariant().await;
    JobRef::from_id(jobs[2]).requeue(&mut connection).await.unwrap();
    sqlx::query("update queue.done_many set finished_at = now() - interval '8 days'").execute(&db.pool).await.unwrap();
    let prune = sqlx::query_scalar::<_, i64>(Store::default().sql(include_str!("../../queue-worker/sql/prune_done.sql")));
    assert_eq!(prune.bind(7.0 * 86_400.0).bind(5000_i64).fetch_one(&db.pool).await.unwrap(), 3);
    assert_eq!(db.count("select count(*) from queue.job").await, 3, "those that were requeued");
    db.finish().await;
}

#[tokio::test]
async fn steps_outlive_their_day_with_their_jobs_and_a_day_of_very_many_stays() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 10).await;
    let asleep = past_job(&db.pool, 10, SCHEDULED).await;
    let finished =
        past_job(&db.pool, 10, "insert into queue.done (id, finished_at, ran_ms, attempts) values ($1, now() - interval '9 days', 1, 2)")
            .await;
    let step = "insert into queue.step (id, name, attempt, at, ran_ms) select $1, 'step/' || n, 1, now(), 1 from generate_series(1, $2) n";
    for (job, count) in [(asleep, 101), (finished, 500)] {
        sqlx::query(step).bind(job).bind(count).execute(&db.pool).await.unwrap();
    }
    let drop = "select queue.drop_day(interval '7 days', 1) is not null";
    assert!(!sqlx::query_scalar::<_, bool>(drop).fetch_one(&db.pool).await.unwrap(), "one job, and too many steps");
    sqlx::query("delete from queue.step where id = $1 and name = 'step/1'").bind(asleep).execute(&db.pool).await.unwrap();
    assert!(sqlx::query_scalar::<_, bool>(drop).fetch_one(&db.pool).await.unwrap());
    let left = ["select count(*) from queue.step_default", "select count(*) from queue.step"];
    assert_eq!((db.count(left[0]).await, db.count(left[1]).await), (100, 100));
    db.finish().await;
}

#[tokio::test]
async fn days_are_dropped_oldest_first_and_never_before_their_end() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    for days_ago in [1, 12, 10, 11] {
        make_past_day(&db.pool, days_ago).await;
        past_job(&db.pool, days_ago, DONE_LONG_AGO).await;
    }
    let past = days(&db).await[..4].to_vec();
    for dropped in 1..=3 {
        assert!(drop_day(&mut connection, 7.0).await.unwrap());
        assert_eq!(days(&db).await[..4 - dropped], past[dropped..]);
    }
    assert!(!drop_day(&mut connection, 1.0).await.unwrap(), "yesterday ended less than a day ago");
    db.finish().await;
}

#[tokio::test]
async fn history_without_a_day_is_deleted_after_its_retention() {
    let db = TestDb::new().await;
    let finished = past_job(&db.pool, 9, DONE_LONG_AGO).await;
    let mut kept = Vec::new();
    for entry in [READY, SCHEDULED, DEAD, DONE_LATELY] {
        kept.push(past_job(&db.pool, 9, entry).await);
    }
    let pruned: i64 = sqlx::query_scalar(Store::default().sql(include_str!("../../queue-worker/sql/prune_done.sql")))
        .bind(7.0 * 86_400.0)
        .bind(5000_i64)
        .fetch_one(&db.pool)
        .await
        .unwrap();
    assert_eq!(pruned, 1);
    assert_eq!(db.state(finished).await, None);
    for id in kept {
        assert!(db.state(id).await.is_some());
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 4);
    assert_eq!(db.count("select count(*) from queue.failure").await, 4);
    db.finish().await;
}

#[tokio::test]
async fn of_two_sessions_one_works_on_days_and_the_other_returns_immediately() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 9).await;
    let (mut first, mut second) = (connect(&db).await, connect(&db).await);
    let mut working = first.begin().await.unwrap();
    assert!(add_days(&mut working, 9).await >= 2);
    // The first transaction stays open, so a second session that waited for its end would wait forever.
    let at_once = async { (add_days(&mut second, 20).await, drop_day(&mut second, 7.0).await.unwrap()) };
    assert_eq!(tokio::time::timeout(PATIENCE, at_once).await.unwrap(), (0, false));
    working.rollback().await.unwrap();
    assert!(drop_day(&mut second, 7.0).await.unwrap());
    db.finish().await;
}

/// Repeatedly tries to drop a day partition that another session is reading, until `stop` is set. Returns the number of tries.
async fn drop_again_and_again(dropper: &mut PgConnection, stop: &AtomicBool) -> usize {
    let mut tries = 0;
    while !stop.load(SeqCst) {
        let refused = drop_day(dropper, 7.0).await.unwrap_err();
        assert_eq!(refused.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("55P03"), "{refused}");
        tries += 1;
    }
    tries
}

#[tokio::test]
async fn a_day_that_is_being_read_is_dropped_later_and_producers_hardly_wait() {
    const BEHIND: &str = "select count(*) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%insert_job%'";
    let db = TestDb::new().await;
    make_past_day(&db.pool, 9).await;
    let kept = past_job(&db.pool, 9, DEAD).await;
    let (mut reader, mut dropper) = (connect(&db).await, connect(&db).await);
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("select count(*) from queue.job").execute(&mut *reading).await.unwrap();
    sqlx::query("set statement_timeout = '30s'").execute(&mut dropper).await.unwrap();
    let (stop, met) = (AtomicBool::new(false), AtomicBool::new(false));
    // Enqueues at least 20 jobs, and continues until a producer has waited behind the session that drops the partition.
    let produce = async || {
        let mut jobs = Vec::new();
        while jobs.len() < 20 || !met.load(SeqCst) {
            jobs.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id());
        }
        jobs
    };
    let watch = async || {
        eventually("a producer waits behind a dropper", async || db.count(BEHIND).await > 0).await;
        met.store(true, SeqCst);
    };
    // If the session that drops the partition waited for the reader, producers would wait for that session. They would continue only after
    // all reads have finished.
    let producing = async {
        let (one, two, three, ()) = tokio::join!(produce(), produce(), produce(), watch());
        stop.store(true, SeqCst);
        [one, two, three].concat()
    };
    let both = async { tokio::join!(producing, drop_again_and_again(&mut dropper, &stop)) };
    let (jobs, tries) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert!(jobs.len() >= 60 && tries >= 2, "{} jobs beside {tries} tries", jobs.len());
    reading.rollback().await.unwrap();
    assert_eq!(db.state(kept).await, Some(JobState::Dead));
    assert!(drop_day(&mut dropper, 7.0).await.unwrap());
    assert_eq!(db.state(kept).await, Some(JobState::Dead));
    for job in jobs {
        assert_eq!(db.state(job).await, Some(JobState::Ready));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_is_settled_while_its_day_is_dropped_is_kept() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 9).await;
    let (mut settler, mut dropper) = (connect(&db).await, connect(&db).await);
    // Lets the drop wait for the settle instead of timing out.
    sqlx::query("alter function queue.drop_day set lock_timeout = '60s'").execute(&db.pool).await.unwrap();
    let worker = register(&mut settler).await.unwrap();
    let jobs = [past_job(&db.pool, 9, READY).await, past_job(&db.pool, 9, READY).await];
    let lease = claim(&mut settler, worker, 2).await.unwrap();
    let mut settling = settler.begin().await.unwrap();
    assert_eq!(settle(&mut settling, &[lease.one(0, "complete"), lease.one(1, "retry")]).await.unwrap(), []);
    let dropping = tokio::spawn(async move { drop_day(&mut dropper, 7.0).await });
    eventually("it waits for the settle", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
    })
    .await;
    settling.commit().await.unwrap();
    assert!(dropping.await.unwrap().unwrap());
    assert_eq!(db.state(jobs[0]).await, Some(JobState::Completed));
    assert_eq!(db.state(jobs[1]).await, Some(JobState::Scheduled));
    assert_eq!(db.count("select count(*) from queue.failure").await, 3, "one each before, one now");
    db.finish().await;
}

#[tokio::test]
async fn a_worker_runs_housekeeping_by_itself() {
    let db = TestDb::new().await;
    make_past_day(&db.pool, 3).await;
    let dropped = past_job(&db.pool, 3, DONE_LONG_AGO).await;
    let pruned = past_job(&db.pool, 5, DONE_LONG_AGO).await;
    let (dead, ready) = (past_job(&db.pool, 3, DEAD).await, past_job(&db.pool, 3, READY).await);
    let drop_last_day = "do $$ declare parent text; begin
       foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
         execute format('drop table queue.%I', parent || '_' || queue.day_name((now() at time zone 'UTC')::date + 7));
       end loop;
     end $$";
    sqlx::query(drop_last_day).execute(&db.pool).await.unwrap();
    let before = days(&db).await.len();
    let mut config = Config::default();
    config.retention = Duration::from_secs(1);
    // Shorten the interval between maintenance rounds from a minute to about a second, because a partition that a session is reading is
    // dropped only in a later round.
    config.pace = 60;
    db.run_while(queue_worker::Worker::new(db.pool.clone()).config(config).register::<Do>(), async {
        let gone = async || {
            let jobs = db.state(dropped).await.is_none() && db.state(pruned).await.is_none();
            jobs && days(&db).await.len() == before
        };
        eventually("the past is gone", gone).await;
        // A completed job that outlived its day counts as expired history, so its row may be deleted at any moment. The test therefore
        // checks the job's effect instead of its state.
        eventually("its straggler has run", async || tests::effects(&db.pool, ready).await.unwrap() == 1).await;
    })
    .await;
    assert_eq!(db.state(dead).await, Some(JobState::Dead));
    assert_eq!(days(&db).await.len(), before, "a day in the past is gone, and one ahead is there");
    db.finish().await;
}

#[tokio::test]
async fn a_day_is_skipped_whichever_table_has_rows_of_it() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let id = "select queue.id_at(((now() at time zone 'UTC')::date + $1 + time '12:00') at time zone 'UTC')";
    let rows = [
        "insert into queue.job select $1, 1, 1, '{}'",
        "insert into queue.done select $1, now(), 1, 2",
        "insert into queue.done_many select $1, $1, now(), 1, array[$1]",
        "insert into queue.failure select $1, 1, now(), 1, 'once'",
        "insert into queue.step select $1, now(), 1, 1, 'a'",
    ];
    for (row, ahead) in rows.into_iter().zip([9, 11, 13, 15, 17]) {
        let id: i64 = sqlx::query_scalar(id).bind(ahead).fetch_one(&mut connection).await.unwrap();
        sqlx::query(row).bind(id).execute(&mut connection).await.unwrap();
    }
    assert!((6..=7).contains(&add_days(&mut connection, 18).await), "those between, and the last");
    sqlx::raw_sql("delete from queue.job; delete from queue.done; delete from queue.done_many").execute(&mut connection).await.unwrap();
    db.finish().await;
}
