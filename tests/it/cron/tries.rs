//! Tests retries of a tick whose job cannot be enqueued on the first attempt. The retries end one grace period after the first attempt,
//! even if the first attempt was late.

use queue_core::Queue;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tests::TestDb;

use super::{STORE, each_second, fires, outcomes};

/// Creates a schedule whose tick was due an hour ago, with a grace of one minute.
async fn create_late(db: &TestDb, name: &str) {
    Queue::new(&db.pool).store(STORE()).schedule(name).create(&each_second()).await.unwrap();
    super::without_workers(db, name, "1 h").await;
}

/// Fires `ticks` consecutive ticks, starting with the schedule's current tick. Returns the outcomes.
async fn fire(on: &mut PgConnection, name: &str, ticks: i32) -> Vec<String> {
    let fire = "select f.outcome from queue.schedule s, queue.fire_ticks(s.name, s.definition, s.next_at,
      array(select s.next_at + n * interval '1 s' from generate_series(0, $2 - 1) n), 'enqueue', s.next_at + interval '1 h', null, 1) f
      where s.name = $1";
    sqlx::query_scalar(fire).bind(name).bind(ticks).fetch_all(on).await.unwrap()
}

async fn count_schedules(db: &TestDb, what: &str) -> i64 {
    db.count(&format!("select count(*) from queue.schedule where {what}")).await
}

/// Moves the recorded time of the first attempt to `ago` before now.
async fn date_first_try(db: &TestDb, ago: &str) {
    let moved = format!("update queue.schedule set tried_at = now() - interval '{ago}' where tried_at is not null");
    assert_eq!(sqlx::query(AssertSqlSafe(moved)).execute(&db.pool).await.unwrap().rows_affected(), 1);
}

/// Simulates that `time` passes before the next attempt to fire.
async fn pass_time(db: &TestDb, time: &str) {
    let moved = format!(
        "update queue.schedule set tried_at = tried_at - interval '{time}', again_at = again_at - interval '{time}' where tried_at is not null"
    );
    assert_eq!(sqlx::query(AssertSqlSafe(moved)).execute(&db.pool).await.unwrap().rows_affected(), 1);
}

const LOCK: &str = "lock table queue.ready in exclusive mode";

#[tokio::test]
async fn a_late_tick_is_tried_until_a_grace_after_its_first_try_and_then_it_has_failed() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    create_late(&db, "b").await;
    let (mut on, mut other) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let mut held = other.begin().await.unwrap();
    sqlx::query(LOCK).execute(&mut *held).await.unwrap();
    sqlx::query("set statement_timeout = '20s'").execute(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "a", 1).await, ["raised"]);
    assert_eq!(count_schedules(&db, "name = 'a' and tried_at > now() - interval '20 s'").await, 1);
    assert_eq!(count_schedules(&db, "tried_at is null").await, 1, "the other one was not tried");
    date_first_try(&db, "50 s").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["raised"]);
    assert_eq!(count_schedules(&db, "tried_at < now() - interval '45 s'").await, 1, "the first try counts");
    date_first_try(&db, "60 s").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["failed"]);
    assert!(fires(&db, "a").await[0].error.as_deref().unwrap().contains("55P03"));
    assert_eq!(count_schedules(&db, "tried_at is null").await, 2, "the next tick is another");
    held.rollback().await.unwrap();
    super::without_workers(&db, "a", "30 min").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["enqueued"]);
    assert_eq!(outcomes(&db, "b").await, [""; 0]);
    db.finish().await;
}

/// A long time without attempts uses up at most a tenth of the grace period, so a tick still gets most of its grace period after an
/// outage of all workers or of the server. A tick that is tried only once an hour nevertheless fails eventually.
#[tokio::test]
async fn of_time_without_tries_a_tenth_of_the_grace_counts_and_a_rest_counts_whole() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    let (mut on, mut other) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let mut held = other.begin().await.unwrap();
    sqlx::query(LOCK).execute(&mut *held).await.unwrap();
    assert_eq!(fire(&mut on, "a", 1).await, ["raised"]);
    let mut hours = 0;
    loop {
        pass_time(&db, "1 h").await;
        hours += 1;
        match fire(&mut on, "a", 1).await[0].as_str() {
            "raised" => assert!(hours < 12, "it is tried for ever"),
            outcome => break assert_eq!(outcome, "failed"),
        }
    }
    assert!(hours >= 9, "after {hours} tries, an hour between each two");
    super::without_workers(&db, "a", "30 min").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["raised"]);
    pass_time(&db, "40 s").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["raised"]);
    pass_time(&db, "40 s").await;
    assert_eq!(fire(&mut on, "a", 1).await, ["failed"]);
    held.rollback().await.unwrap();
    db.finish().await;
}

/// Simulates a cancelled statement, which leaves no writes. Its caller records the failure with another call of `queue.fire_ticks`.
#[tokio::test]
async fn a_cancelled_try_is_recorded_and_retried_until_a_grace_after_the_first_try() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    create_late(&db, "b").await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let mut in_vain = async |next: Option<&str>| {
        let fire =
            "select f.outcome, f.why from queue.schedule s, queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], 'fail',
          s.next_at + $1::text::interval, 'cancelled') f where s.name = 'a'";
        let answers: Vec<(String, Option<String>)> = sqlx::query_as(fire).bind(next).fetch_all(&mut on).await.unwrap();
        assert!(answers.len() == 1 && answers[0].1.as_deref() == Some("cancelled"), "{answers:?}");
        answers[0].0.clone()
    };
    assert_eq!(in_vain(Some("1 h")).await, "raised");
    assert_eq!(count_schedules(&db, "name = 'a' and tried_at > now() - interval '20 s' and error is null").await, 1);
    date_first_try(&db, "50 s").await;
    assert_eq!(in_vain(Some("1 h")).await, "raised");
    date_first_try(&db, "60 s").await;
    assert_eq!(in_vain(None).await, "failed");
    assert_eq!(fires(&db, "a").await[0].error.as_deref(), Some("cancelled"));
    assert_eq!(count_schedules(&db, "name = 'a' and tried_at is null and error = 'it has no further ticks'").await, 1);
    assert_eq!(count_schedules(&db, "name = 'b' and tried_at is null and error is null").await, 1, "the other one was not tried");
    assert_eq!(db.count("select count(*) from queue.job").await, 0);
    db.finish().await;
}

/// Checks that only the first tick of a statement waits for the full lock timeout. If each tick did, the statement would time out.
#[tokio::test]
async fn hundreds_of_ticks_at_their_last_try_wait_for_a_lock_once() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    sqlx::query("update queue.schedule set tried_at = now() - interval '1 min'").execute(&db.pool).await.unwrap();
    let (mut on, mut other) = (PgConnection::connect(&db.url).await.unwrap(), PgConnection::connect(&db.url).await.unwrap());
    let mut held = other.begin().await.unwrap();
    sqlx::query(LOCK).execute(&mut *held).await.unwrap();
    sqlx::query("set statement_timeout = '30s'").execute(&mut on).await.unwrap();
    assert_eq!(fire(&mut on, "a", 999).await, ["failed"; 999]);
    held.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_resumed_or_recreated_schedule_starts_with_a_first_try() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let tried = "update queue.schedule set tried_at = now() - interval '1 min'";
    sqlx::query(tried).execute(&mut on).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("a").resume().await.unwrap();
    assert_eq!(count_schedules(&db, "tried_at is not null").await, 1, "it was not paused");
    Queue::new(&db.pool).store(STORE()).schedule("a").pause().await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("a").resume().await.unwrap();
    assert_eq!(count_schedules(&db, "tried_at is null").await, 1);

    sqlx::query(tried).execute(&mut on).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&each_second()).await.unwrap();
    assert_eq!(count_schedules(&db, "tried_at is not null").await, 1, "it is unchanged");
    Queue::new(&db.pool).store(STORE()).schedule("a").create(&each_second().jitter(std::time::Duration::from_secs(1))).await.unwrap();
    assert_eq!(count_schedules(&db, "tried_at is null").await, 1);
    db.finish().await;
}

/// Rejects updates of schedule `a`, so the failure of its tick cannot be recorded. Schedule `b` in the same statement must fire
/// nevertheless.
#[tokio::test]
async fn a_first_try_that_cannot_be_recorded_stops_no_other() {
    let db = TestDb::new().await;
    create_late(&db, "a").await;
    create_late(&db, "b").await;
    let refuse = "create function queue.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
      create trigger refuse before update on queue.schedule for each row when (new.name = 'a') execute function queue.refuse()";
    sqlx::raw_sql(refuse).execute(&db.pool).await.unwrap();
    let both = "select s.name || ' ' || f.outcome from queue.schedule s,
      queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], 'enqueue', now() + interval '1 h', null) f order by 1";
    let both: Vec<String> = sqlx::query_scalar(both).fetch_all(&db.pool).await.unwrap();
    assert_eq!(both, ["a raised", "b enqueued"]);
    sqlx::query("drop function queue.refuse cascade").execute(&db.pool).await.unwrap();
    db.finish().await;
}
