//! Tests `queue.fire_ticks` and related functions, one call at a time.

use queue_core::{Queue, schedule};
use sqlx::{Connection as _, PgConnection};
use tests::TestDb;

use super::{STORE, each_second, fires};

/// Creates a schedule whose tick was due a second ago. Returns the hash of its definition.
async fn due(db: &TestDb, name: &str) -> i64 {
    Queue::new(&db.pool).store(STORE()).schedule(name).create(&each_second()).await.unwrap();
    let made = "update queue.schedule set next_at = now() - interval '1 s' where name = $1 returning definition";
    sqlx::query_scalar(made).bind(name).fetch_one(&db.pool).await.unwrap()
}

/// Fires the next tick of the schedule. Returns the outcomes.
async fn fire(on: &mut PgConnection, name: &str, verb: &str) -> Vec<String> {
    let fire = "select f.outcome from queue.schedule s, queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], $2, now() + interval '1 h', null) f where s.name = $1";
    sqlx::query_scalar(fire).bind(name).bind(verb).fetch_all(on).await.unwrap()
}

#[tokio::test]
async fn a_tick_fires_once_and_only_if_its_schedule_is_unchanged() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let (definition, _) = (due(&db, "a").await, due(&db, "b").await);
    let seen: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("select next_at from queue.schedule where name = 'a'").fetch_one(&mut on).await.unwrap();
    let as_seen = async |on: &mut PgConnection, definition: i64, seen: chrono::DateTime<chrono::Utc>| {
        let fire = "select count(*) from queue.fire_ticks('a', $1, $2, array[$2], 'enqueue', $2 + interval '1 s', null)";
        sqlx::query_scalar::<_, i64>(fire).bind(definition).bind(seen).fetch_one(on).await.unwrap()
    };
    assert_eq!(as_seen(&mut on, definition + 1, seen).await, 0, "of another definition");
    assert_eq!(as_seen(&mut on, definition, seen + chrono::Duration::seconds(1)).await, 0, "of another tick");
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut open = other.begin().await.unwrap();
    sqlx::query("select from queue.schedule where name = 'a' for update").execute(&mut *open).await.unwrap();
    assert_eq!(as_seen(&mut on, definition, seen).await, 0, "another session has it locked, and is not waited for");
    open.rollback().await.unwrap();
    sqlx::query("update queue.schedule set paused_at = now() where name = 'a'").execute(&mut on).await.unwrap();
    assert_eq!(as_seen(&mut on, definition, seen).await, 0, "paused");
    sqlx::query("update queue.schedule set paused_at = null where name = 'a'").execute(&mut on).await.unwrap();
    assert_eq!(as_seen(&mut on, definition, seen).await, 1);
    assert_eq!(as_seen(&mut on, definition, seen).await, 0, "a zombie comes too late");
    assert_eq!((fires(&db, "a").await.len(), fires(&db, "b").await.len()), (1, 0));
    let moved: Vec<String> = sqlx::query_scalar("select name from queue.schedule where next_at = $1 + interval '1 s'")
        .bind(seen)
        .fetch_all(&mut on)
        .await
        .unwrap();
    assert_eq!(moved, ["a"], "one has moved on");
    let ahead = "update queue.schedule set next_at = now() + interval '1 h' where name = 'a' returning next_at";
    let ahead: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(ahead).fetch_one(&mut on).await.unwrap();
    assert_eq!(as_seen(&mut on, definition, ahead).await, 0, "not before its time");
    db.finish().await;
}

/// Fires three schedules with the same tick and the same definition hash, because two schedules may have the same definition. Each
/// schedule must create its own job.
#[tokio::test]
async fn of_schedules_with_one_definition_and_one_tick_each_fires_its_own() {
    let db = TestDb::new().await;
    for name in ["a", "b", "c"] {
        due(&db, name).await;
    }
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let same = "update queue.schedule set definition = 7, next_at = date_trunc('second', now()) - interval '1 s'";
    sqlx::query(same).execute(&mut on).await.unwrap();
    for name in ["b", "a", "c"] {
        assert_eq!(fire(&mut on, name, "enqueue").await, ["enqueued"]);
        let theirs = format!(
            "select count(*) from queue.fire f join queue.job j on j.id = f.job where f.name = '{name}' and j.system ->> 'schedule' = f.name"
        );
        assert_eq!(db.count(&theirs).await, 1, "{name}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_tick_that_has_fired_has_no_second_job_after_a_clock_step() {
    let db = TestDb::new().await;
    due(&db, "a").await;
    due(&db, "b").await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let tick = "select next_at from queue.schedule where name = 'a'";
    let tick: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(tick).fetch_one(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "a", "enqueue").await, ["enqueued"]);
    let before = fires(&db, "a").await;
    let again = "update queue.schedule set next_at = $1";
    sqlx::query(again).bind(tick).execute(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "a", "enqueue").await, ["fired"]);
    assert_eq!(fires(&db, "a").await, before, "its outcome stays");
    assert_eq!(db.count("select count(*) from queue.job").await, 1);
    assert_eq!(db.count("select count(*) from queue.schedule where name = 'a' and next_at > now()").await, 1, "and the schedule continues");
    assert_eq!(fire(&mut on, "b", "enqueue").await, ["enqueued"], "of another schedule it is another tick");
    sqlx::query(again).bind(tick + chrono::Duration::milliseconds(1)).execute(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "a", "enqueue").await, ["enqueued"], "another tick");
    db.finish().await;
}

#[tokio::test]
async fn a_manual_run_belongs_to_the_named_schedule_and_is_not_delayed() {
    let db = TestDb::new().await;
    let put_off = each_second().jitter(std::time::Duration::from_hours(24));
    for name in ["a", "b"] {
        Queue::new(&db.pool).store(STORE()).schedule(name).create(&put_off).await.unwrap();
    }
    for name in ["a", "b"] {
        let job = Queue::new(&db.pool).store(STORE()).schedule(name).run_now().await.unwrap();
        let of = "select j.system ->> 'schedule' from queue.job j join queue.ready r on r.id = j.id where j.id = $1";
        let of: Option<String> = sqlx::query_scalar(of).bind(job).fetch_optional(&db.pool).await.unwrap();
        assert_eq!(of.as_deref(), Some(name));
    }
    db.finish().await;
}

#[tokio::test]
async fn a_tick_is_skipped_or_missed_without_a_job() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for (name, verb, outcome) in [("a", "enqueue", "skipped"), ("b", "miss", "missed")] {
        due(&db, name).await;
        // An operator skips the tick after a worker has read the schedule. The worker still tries to fire the tick.
        sqlx::query("update queue.schedule set skip_at = next_at where name = 'a'").execute(&mut on).await.unwrap();
        assert_eq!(fire(&mut on, name, verb).await, [outcome]);
        assert_eq!(fires(&db, name).await[0].job, None);
    }
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn an_unchanged_schedule_stays_and_a_changed_one_keeps_its_tick_if_its_timing_is_the_same() {
    let db = TestDb::new().await;
    due(&db, "a").await;
    due(&db, "b").await;
    let row = "select (xmin::text::bigint # extract(epoch from next_at)::bigint) from queue.schedule where name = 'a'";
    let before = db.count(row).await;
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&each_second()).await.unwrap();
    assert_eq!(db.count(row).await, before, "not written");
    let other = each_second().overlap(schedule::Overlap::Queue);
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&other).await.unwrap();
    let kept = "select count(*) from queue.schedule where name = 'a' and overlap = 'queue' and next_at is not null";
    assert_eq!(db.count(kept).await, 1);
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&schedule::Schedule::cron("0 * * * *").job(&super::quick())).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.schedule where name = 'a' and next_at is null and cron = '0 * * * *'").await, 1);
    assert_eq!(
        db.count("select count(*) from queue.schedule where name = 'b' and next_at is not null and cron is null").await,
        1,
        "no other"
    );
    db.finish().await;
}

#[tokio::test]
async fn outcomes_of_old_ticks_are_pruned_except_for_live_jobs() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    for name in ["a", "b", "c"] {
        due(&db, name).await;
    }
    assert_eq!(fire(&mut on, "a", "enqueue").await, ["enqueued"], "its job waits");
    assert_eq!(fire(&mut on, "b", "miss").await, ["missed"]);
    let earlier = "insert into queue.fire (name, tick, outcome) select 'b', now() - interval '9 days', 'missed'";
    sqlx::query(earlier).execute(&mut on).await.unwrap();
    sqlx::query("update queue.fire set fired_at = now() - interval '8 days'").execute(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "c", "miss").await, ["missed"], "of today");
    let withdrawn = "update queue.schedule set source = 'static', withdrawn_at = now() - case name when 'b' then interval '8 days' else '1 h' end where name <> 'a'";
    sqlx::query(withdrawn).execute(&mut on).await.unwrap();
    let declared = "insert into queue.declaration (name, definition, last_seen, job_type, payload, options)
      select n, n::int, now() - d * interval '1 day', 'do', '{}', '{}' from unnest('{1,2,3}'::text[], '{8,8,1}'::int[]) t (n, d)";
    sqlx::query(declared).execute(&mut on).await.unwrap();
    sqlx::query("insert into queue.worker (id, expires_at, name, host, pid, version, queues, declares) values (gen_random_uuid(), now(), 'w', 'h', 1, '1', '{}', '{2}')")
        .execute(&mut on)
        .await
        .unwrap();
    let mut open = PgConnection::connect(&db.url).await.unwrap();
    let mut held = open.begin().await.unwrap();
    sqlx::query("select from queue.fire, queue.declaration, queue.schedule for update").execute(&mut *held).await.unwrap();
    let prune = async |on: &mut PgConnection, most: i64| {
        let prune = STORE().sql(include_str!("../../../queue-worker/sql/prune_fires.sql"));
        sqlx::query_scalar::<_, i64>(prune).bind(7.0 * 86_400.0).bind(most).fetch_one(on).await.unwrap()
    };
    sqlx::query("set lock_timeout = '2s'").execute(&mut on).await.unwrap();
    assert_eq!(prune(&mut on, 100).await, 0, "others hold them, and are not waited for");
    held.rollback().await.unwrap();
    assert_eq!(prune(&mut on, 1).await, 1, "at most this number");
    assert_eq!(prune(&mut on, 100).await, 1);
    let left = "select string_agg(name, '' order by name) from queue.";
    let left = async |table: &str| {
        let left: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("{left}{table}"))).fetch_one(&db.pool).await.unwrap();
        left
    };
    assert_eq!([left("fire").await, left("schedule").await, left("declaration").await], ["ac", "ac", "23"]);
    db.finish().await;
}

#[tokio::test]
async fn a_tick_waits_for_no_lock_forever_and_the_callers_lock_timeout_is_kept() {
    let db = TestDb::new().await;
    due(&db, "a").await;
    let (mut on, mut other) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let mut held = other.begin().await.unwrap();
    sqlx::query("lock table queue.ready in exclusive mode").execute(&mut *held).await.unwrap();
    sqlx::query("set statement_timeout = '20s'").execute(&mut on).await.unwrap();
    let mut caller = on.begin().await.unwrap();
    sqlx::query("set local lock_timeout = '7s'").execute(&mut *caller).await.unwrap();
    assert_eq!(fire(&mut caller, "a", "enqueue").await, ["raised"]);
    let patience: String = sqlx::query_scalar("show lock_timeout").fetch_one(&mut *caller).await.unwrap();
    assert_eq!(patience, "7s");
    caller.commit().await.unwrap();
    held.rollback().await.unwrap();
    assert_eq!(fire(&mut on, "a", "enqueue").await, ["enqueued"]);
    db.finish().await;
}

/// One call fires several ticks. Each tick gets its own outcome, not the outcome of the previous tick.
#[tokio::test]
async fn each_of_several_ticks_has_its_own_job_and_reason() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&each_second().jitter(std::time::Duration::from_hours(1))).await.unwrap();
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let due = "update queue.schedule set next_at = date_trunc('second', now()), skip_at = date_trunc('second', now()) + interval '1 s'";
    sqlx::query(due).execute(&mut on).await.unwrap();
    // The tick in the year 9999 fails, because the jitter moves the start of its job beyond the supported range of times.
    let fire = "select f.outcome, f.job is not null, f.why is not null
      from queue.schedule s, queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at, s.skip_at, '9999-12-31 23:59:59+00', s.skip_at + interval '1 s'],
        'enqueue', null, null) f";
    let came: Vec<(String, bool, bool)> = sqlx::query_as(fire).fetch_all(&mut on).await.unwrap();
    let came: Vec<(&str, bool, bool)> = came.iter().map(|(outcome, job, why)| (outcome.as_str(), *job, *why)).collect();
    assert_eq!(came, [("enqueued", true, false), ("skipped", false, false), ("failed", false, true), ("enqueued", true, false)]);
    let without = "select count(*) from queue.schedule where next_at is null and error = 'it has no further ticks'";
    assert_eq!(db.count(without).await, 1, "one without a next tick is reported as such");
    db.finish().await;
}
