//! Tests schedules that fail repeatedly or that another session has locked. Other schedules fire in time, and each failed tick is recorded
//! with its error.

use std::time::{Duration, Instant};

use queue_core::{
    Queue,
    schedule::{Missed, Overlap, Schedule},
};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, WorkerProcess, eventually, within};

use super::{STORE, check_each_second, each_second, fires, outcomes, quick, sleeper, without_workers};

/// Returns a schedule that fires every second and whose jobs have an ordering key.
fn keyed(key: &str, grace: Duration) -> Schedule {
    Schedule::every(Duration::from_secs(1)).grace(grace).overlap(Overlap::Allow).job_with(&quick(), |options| {
        options.key(key);
    })
}

#[tokio::test]
#[ignore = "deep"]
async fn schedules_fire_in_time_beside_twenty_whose_jobs_cannot_be_enqueued() {
    let db = TestDb::new().await;
    let mut open = db.pool.begin().await.unwrap();
    for place in 0..20 {
        queue_core::Job::enqueue(quick(), &mut open).key(format!("k{place}")).await.unwrap();
        let grace = Duration::from_secs(if place == 0 { 5 } else { 60 });
        Queue::new(&db.pool).store(STORE()).schedule(&format!("poison{place}")).create(&keyed(&format!("k{place}"), grace)).await.unwrap();
    }
    for place in 0..5 {
        Queue::new(&db.pool).store(STORE()).schedule(&format!("good{place}")).create(&each_second()).await.unwrap();
    }
    db.run_while(sleeper(&db), async {
        let good = "select count(*) from queue.fire where name like 'good%'";
        eventually("the good ones fire", async || db.count(good).await >= 60).await;
        eventually("one ends visibly", async || fires(&db, "poison0").await.iter().any(|fire| fire.outcome == "failed")).await;
        open.rollback().await.unwrap();
        let going = "select count(distinct name) from queue.fire where name like 'poison%' and outcome = 'enqueued'";
        within(Duration::from_secs(70), "all go on", async || db.count(going).await == 20).await;
    })
    .await;
    for place in 0..5 {
        check_each_second(&db.pool, &format!("good{place}")).await;
    }
    // The first ticks are not measured, because their time has passed when they are planned.
    let late = "select extract(epoch from fired_at - tick)::float8 * 1000 from queue.fire
      where name like 'good%' and tick > (select min(tick) + interval '2 s' from queue.fire) order by 1";
    let late: Vec<f64> = sqlx::query_scalar(late).fetch_all(&db.pool).await.unwrap();
    let at = |share: usize| late[(late.len() - 1) * share / 100];
    println!("{} ticks, late p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms", late.len(), at(50), at(90), at(99));
    assert!(at(50) < 300.0, "half of them are more than {} ms late", at(50));
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// The statement of one tick fails as if another session had cancelled it. The statement of a second tick does not end until it is
/// cancelled. The writes of both ticks are rolled back.
#[tokio::test]
#[ignore = "deep"]
async fn a_tick_whose_statement_is_cancelled_stops_no_other_and_ends_visibly() {
    let db = TestDb::new().await;
    let ended = "create function queue.ended() returns trigger language plpgsql as $$
      begin
        if new.name = 'endless' then perform pg_sleep(300); end if;
        raise exception using errcode = 'query_canceled', message = 'as told';
      end $$;
      create trigger ended before insert on queue.fire for each row
        when (new.name <> 'good' and new.outcome = 'enqueued') execute function queue.ended()";
    sqlx::raw_sql(ended).execute(&db.pool).await.unwrap();
    let soon = each_second().grace(Duration::from_secs(2));
    for (name, schedule) in [("endless", &soon), ("cancelled", &soon), ("good", &each_second())] {
        Queue::new(&db.pool).store(STORE()).schedule(name).create(schedule).await.unwrap();
    }
    db.run_while(sleeper(&db), async {
        eventually("the good one fires", async || fires(&db, "good").await.len() >= 2).await;
        eventually("the endless one is known to have been tried", async || {
            db.count("select count(*) from queue.schedule where name = 'endless' and tried_at is not null").await == 1
        })
        .await;
        let failed = async || fires(&db, "cancelled").await.into_iter().find(|fire| fire.outcome == "failed");
        eventually("the cancelled one ends visibly", async || failed().await.is_some()).await;
        assert!(failed().await.unwrap().error.unwrap().contains("as told (57014)"));
    })
    .await;
    check_each_second(&db.pool, "good").await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    sqlx::query("drop function queue.ended cascade").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// Checks that a late tick is retried while its ordering key is locked, and fires when the lock is gone. The worker logs each failed
/// attempt. On the first attempt, other ticks precede the late tick in the same statement.
#[tokio::test]
#[ignore = "deep"]
async fn a_late_tick_behind_a_lock_fires_once_the_lock_is_gone() {
    let db = TestDb::new().await;
    let mut open = db.pool.begin().await.unwrap();
    queue_core::Job::enqueue(quick(), &mut open).key("k").await.unwrap();
    Queue::new(&db.pool)
        .store(STORE())
        .schedule("late")
        .create(&keyed("k", Duration::from_mins(1)).missed(Missed::CatchUp(3)))
        .await
        .unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    without_workers(&db, "late", "1 h").await;
    let began = Instant::now();
    let worker = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    eventually("it is tried again and again", async || {
        let tries = worker.log_since(began).iter().filter(|line| line.contains("until its grace period has passed")).count();
        tries >= 2 || !fires(&db, "late").await.is_empty()
    })
    .await;
    assert_eq!(outcomes(&db, "late").await, [""; 0], "it has no outcome yet");
    assert_eq!(db.count("select count(*) from queue.schedule where tried_at is not null").await, 1, "the other one has no trouble");
    open.rollback().await.unwrap();
    eventually("it fires", async || fires(&db, "late").await.len() >= 5).await;
    drop(worker);
    assert!(check_each_second(&db.pool, "late").await >= 5);
    assert_eq!(db.count("select count(*) from queue.schedule where tried_at is not null").await, 0);
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn hundreds_of_locked_schedules_delay_no_other() {
    let db = TestDb::new().await;
    let made = "select queue.schedule('stuck' || n, 'do', '{\"act\": {\"Ok\": \"\"}}', '{\"every\": 1}') from generate_series(1, 1100) n";
    sqlx::query(made).execute(&db.pool).await.unwrap();
    sqlx::query("update queue.schedule set next_at = now() - interval '1 h'").execute(&db.pool).await.unwrap();
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut open = other.begin().await.unwrap();
    sqlx::query("select from queue.schedule where name like 'stuck%' for update").execute(&mut *open).await.unwrap();
    db.run_while(sleeper(&db), async {
        // Workers read due schedules in the order of their next ticks, so `good` comes after the 1,100 overdue schedules.
        eventually("it fires", async || fires(&db, "good").await.len() >= 4).await;
        assert_eq!(db.count("select count(*) from queue.fire where name <> 'good'").await, 0);
        open.rollback().await.unwrap();
        eventually("the others continue", async || db.count("select count(distinct name) from queue.fire").await == 1101).await;
    })
    .await;
    check_each_second(&db.pool, "good").await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

/// Row of a fired tick. The columns are the index of the schedule, the tick, the outcome, the job and the reason.
type FireRow = (i64, Option<chrono::DateTime<chrono::Utc>>, String, Option<i64>, Option<String>);

/// One statement fires all schedules. The writes for a failing schedule are rolled back, and its failure is reported.
#[tokio::test]
async fn what_fails_in_a_statement_for_several_schedules_is_rolled_back_alone() {
    let db = TestDb::new().await;
    let (mut on, mut open) = (PgConnection::connect(&db.url).await.unwrap(), db.pool.begin().await.unwrap());
    queue_core::Job::enqueue(quick(), &mut open).key("k").await.unwrap();
    let names = ["a", "b", "c"];
    for name in names {
        let schedule = if name == "b" { keyed("k", Duration::from_mins(1)) } else { each_second() };
        Queue::new(&db.pool).store(STORE()).schedule(name).create(&schedule).await.unwrap();
    }
    let due = "update queue.schedule set next_at = date_trunc('second', now()) returning definition, next_at";
    let due: Vec<(i64, chrono::DateTime<chrono::Utc>)> = sqlx::query_as(due).fetch_all(&mut on).await.unwrap();
    // Selects all columns except the times that record the attempt to fire.
    let row = "select (to_jsonb(s) - '{tried_at,again_at}'::text[])::text from queue.schedule s where name = 'b'";
    let before: Vec<String> = sqlx::query_scalar(row).fetch_all(&mut on).await.unwrap();
    let tick = due[0].1;
    let fired: Vec<FireRow> = sqlx::query_as(include_str!("../../../queue-worker/sql/fire.sql"))
        .bind(names)
        .bind(due.iter().map(|due| due.0).collect::<Vec<_>>())
        .bind([tick; 3])
        .bind([format!("{{{}}}", tick.to_rfc3339()), format!("{{{}}}", tick.to_rfc3339()), format!("{{{}}}", tick.to_rfc3339())])
        .bind(["enqueue"; 3])
        .bind([tick + chrono::Duration::seconds(1); 3])
        .bind([None::<&str>; 3])
        .bind(1)
        .fetch_all(&mut on)
        .await
        .unwrap();
    let came: Vec<(i64, &str, bool)> = fired.iter().map(|(place, _, outcome, job, _)| (*place, outcome.as_str(), job.is_some())).collect();
    assert_eq!(came, [(1, "enqueued", true), (2, "raised", false), (3, "enqueued", true)]);
    assert!(fired[1].4.as_deref().unwrap().contains("55P03"), "{fired:?}");
    let after: Vec<String> = sqlx::query_scalar(row).fetch_all(&mut on).await.unwrap();
    assert_eq!(after, before, "unchanged");
    assert_eq!((outcomes(&db, "a").await.len(), outcomes(&db, "b").await.len(), outcomes(&db, "c").await.len()), (1, 0, 1));
    open.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_cannot_declare_fires_ticks_nevertheless_and_declares_once_it_can() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).store(STORE()).schedule("good").create(&each_second()).await.unwrap();
    let mut other = PgConnection::connect(&db.url).await.unwrap();
    let mut open = other.begin().await.unwrap();
    sqlx::query("lock table queue.declaration in exclusive mode").execute(&mut *open).await.unwrap();
    let declaring = sleeper(&db).schedule("mine", Schedule::cron("0 0 1 1 *").job(&quick()));
    db.run_while(declaring, async {
        eventually("ticks fire", async || fires(&db, "good").await.len() >= 2).await;
        assert_eq!(db.count("select count(*) from queue.declaration").await, 0);
        open.rollback().await.unwrap();
        eventually("it has declared", async || Queue::new(&db.pool).store(STORE()).schedule("mine").find().await.is_ok()).await;
    })
    .await;
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn one_declaration_that_is_wrong_keeps_no_other_from_being_declared() {
    let db = TestDb::new().await;
    let mut on = PgConnection::connect(&db.url).await.unwrap();
    let worker = tests::protocol::register(&mut on).await.unwrap();
    let answers: Vec<(String, String)> = sqlx::query_as(include_str!("../../../queue-worker/sql/declare.sql"))
        .bind(worker)
        .bind(["nul", "no_json", "no_options", "good"])
        .bind(["do"; 4])
        .bind(["{\"x\": \"\\u0000\"}", "{", "{}", "{}"])
        .bind(["{\"every\": 60}", "{\"every\": 60}", "[", "{\"every\": 60}"])
        .fetch_all(&mut on)
        .await
        .unwrap();
    let names: Vec<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names == ["nul", "no_json", "no_options"] && answers.iter().all(|(_, became)| became.starts_with("refused: ")), "{answers:?}");
    assert_eq!(db.count("select count(*) from queue.declaration where name = 'good'").await, 1);
    assert_eq!(db.count("select count(*) from queue.worker where cardinality(declares) = 1").await, 1);
    db.finish().await;
}
