//! Tests schedules: each tick has exactly one job, even if workers crash. Also tests ticks that are missed, skipped or impossible, and
//! ticks that overlap with unfinished jobs.

mod attacks;
mod changes;
#[cfg(target_os = "linux")]
mod clocks;
mod late;
mod overlaps;
mod poison;
mod releases;
mod refusals;
mod single;
mod tries;

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{
    Queue, Store,
    schedule::{Missed, Overlap, Schedule, TickRecord},
};
use queue_worker::{Config, Worker};
use sqlx::PgPool;
use tests::{Act, Do, TestDb, eventually};

const STORE: fn() -> Store = Store::default;

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Returns a schedule that fires every second and whose jobs may overlap.
fn each_second() -> Schedule {
    Schedule::every(Duration::from_secs(1)).overlap(Overlap::Allow).job(&quick())
}

/// Returns a worker that polls only once an hour, so that jobs are found in time only through notifications.
fn sleeper(db: &TestDb) -> Worker {
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    Worker::new(db.pool.clone()).config(config).register::<Do>()
}

fn word(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Skip => "skip",
        Overlap::Allow => "allow",
        _ => "queue",
    }
}

async fn fires(db: &TestDb, name: &str) -> Vec<TickRecord> {
    let mut fires = Queue::new(&db.pool).store(STORE()).schedule(name).ticks(u16::MAX).await.unwrap();
    fires.reverse();
    fires
}

async fn outcomes(db: &TestDb, name: &str) -> Vec<String> {
    fires(db, name).await.into_iter().map(|fire| fire.outcome).collect()
}

async fn planned(db: &TestDb, name: &str) -> DateTime<Utc> {
    eventually("a worker has computed the next tick", async || {
        Queue::new(&db.pool).store(STORE()).schedule(name).find().await.unwrap().next_at.is_some()
    })
    .await;
    Queue::new(&db.pool).store(STORE()).schedule(name).find().await.unwrap().next_at.unwrap()
}

/// Waits until a schedule is declared, then until its next tick is planned. Returns the time of that tick.
async fn planned_later(db: &TestDb, name: &str) -> DateTime<Utc> {
    eventually("it is declared", async || Queue::new(&db.pool).store(STORE()).schedule(name).find().await.is_ok()).await;
    planned(db, name).await
}

/// Simulates that no worker has been running for this duration.
async fn without_workers(db: &TestDb, name: &str, how_long: &str) {
    let moved = sqlx::query("update queue.schedule set next_at = date_trunc('second', now()) - $2::text::interval where name = $1");
    moved.bind(name).bind(how_long).execute(&db.pool).await.unwrap();
}

/// Checks that the ticks of a one-second schedule are complete and unique. Returns the number of ticks.
async fn check_each_second(pool: &PgPool, name: &str) -> usize {
    let mut fires = Queue::new(pool).store(STORE()).schedule(name).ticks(u16::MAX).await.unwrap();
    fires.reverse();
    for pair in fires.windows(2) {
        assert_eq!((pair[1].tick - pair[0].tick).num_milliseconds(), 1000, "{name}: {:?} and then {:?}", pair[0], pair[1]);
    }
    assert!(fires.iter().all(|fire| fire.outcome == "enqueued" && fire.job.is_some()), "{name}: {fires:?}");
    let jobs = "select count(*), count(distinct system ->> 'tick') from queue.job where system ->> 'schedule' = $1";
    let jobs: (i64, i64) = sqlx::query_as(jobs).bind(name).fetch_one(pool).await.unwrap();
    assert_eq!(jobs, (fires.len() as i64, fires.len() as i64), "{name}: a tick has one job");
    fires.len()
}

#[tokio::test]
#[ignore = "deep"]
async fn each_tick_has_one_job_on_an_idle_worker_and_in_time() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        Queue::new(&db.pool).store(STORE()).schedule("second").create(&each_second()).await.unwrap();
        eventually("some ticks have fired", async || fires(&db, "second").await.len() >= 4).await;
        eventually("their jobs ran", async || db.count("select count(*) from effect").await >= 4).await;
    })
    .await;
    assert!(check_each_second(&db.pool, "second").await >= 4);
    let early = "select count(*) from queue.fire where fired_at < tick";
    assert_eq!(db.count(early).await, 0, "none before its time");
    assert_eq!(
        db.count("select count(*) from effect e join queue.fire f on f.job = e.job").await,
        db.count("select count(*) from effect").await
    );
    db.finish().await;
}

#[tokio::test]
async fn a_worker_without_schedules_has_no_connection_for_them_and_notices_the_first_immediately() {
    let db = TestDb::new().await;
    let connections =
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue-worker schedules'";
    db.run_while(sleeper(&db), async {
        eventually("the worker sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
        assert_eq!(db.count(connections).await, 0);
        let far = Schedule::cron("0 0 1 1 *").tz("Asia/Kathmandu").job(&quick());
        Queue::new(&db.pool).store(STORE()).schedule("yearly").create(&far).await.unwrap();
        // Without the notification, the worker would find the schedule only at its next poll.
        let known = async || Queue::new(&db.pool).store(STORE()).schedule("yearly").find().await.unwrap().next_at.is_some();
        eventually("the worker is notified", known).await;
        let next = planned(&db, "yearly").await;
        assert_eq!(next.format("%m-%d %H:%M").to_string(), "12-31 18:15", "midnight there");
        assert_eq!(db.count(connections).await, 1);
        let found = Queue::new(&db.pool).store(STORE()).schedule("yearly").find().await.unwrap();
        assert_eq!(found.next(2)[0], next);
        assert_eq!(found.next(2).len(), 2);
        Queue::new(&db.pool).store(STORE()).schedule("yearly").delete().await.unwrap();
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn after_three_days_without_a_worker_there_is_one_job_or_the_configured_number() {
    let db = TestDb::new().await;
    let hourly = |missed| Schedule::cron("0 * * * *").missed(missed).overlap(Overlap::Allow).job(&quick());
    let policies =
        [("one", Missed::Coalesce, 1), ("none", Missed::Skip, 0), ("three", Missed::CatchUp(3), 3), ("all", Missed::CatchUp(999), 72)];
    for (name, missed, _) in policies {
        Queue::new(&db.pool).store(STORE()).schedule(name).create(&hourly(missed)).await.unwrap();
    }
    db.run_while(sleeper(&db), async {
        for (name, ..) in policies {
            planned(&db, name).await;
        }
    })
    .await;
    sqlx::query("update queue.schedule set next_at = date_trunc('hour', now()) - interval '71 h'").execute(&db.pool).await.unwrap();
    // In the first minute of an hour, that hour's tick is still within its grace period. A schedule that skips missed ticks then still
    // fires it.
    let on_time = db.count("select (now() < date_trunc('hour', now()) + interval '60 s')::int::bigint").await;
    db.run_while(sleeper(&db), async {
        eventually("what was missed is seen to", async || db.count("select count(*) from queue.schedule where next_at < now()").await == 0)
            .await;
    })
    .await;
    let last: DateTime<Utc> =
        sqlx::query_scalar("select max(next_at) - interval '1 h' from queue.schedule").fetch_one(&db.pool).await.unwrap();
    for (name, missed, jobs) in policies {
        let fires = fires(&db, name).await;
        let with_job = fires.iter().filter(|fire| fire.job.is_some()).count();
        if missed == Missed::Skip {
            assert!(fires[0].outcome == "missed" && (with_job == 0 || on_time == 1), "{name}: {fires:?}");
        } else {
            assert_eq!(with_job, jobs, "{name}: {fires:?}");
            assert_eq!(fires.last().unwrap().tick, last, "{name}: the last is among them");
        }
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_tick_while_a_job_runs_is_skipped_or_waits_or_runs_concurrently() {
    let db = TestDb::new().await;
    let long = Do { act: Act::UntilCancelled(Box::new(Act::Ok(String::new()))) };
    for overlap in [Overlap::Skip, Overlap::Allow, Overlap::Queue] {
        let schedule = Schedule::every(Duration::from_secs(1)).overlap(overlap).job(&long);
        Queue::new(&db.pool).store(STORE()).schedule(word(overlap)).create(&schedule).await.unwrap();
    }
    db.run_while(db.worker(), async {
        eventually("three ticks each", async || {
            db.count("select count(*) from (select from queue.fire group by name having count(*) >= 3) f").await == 3
        })
        .await;
        eventually("some run", async || db.count("select count(*) from effect").await >= 5).await;
        assert_eq!(outcomes(&db, "skip").await[..3], ["enqueued", "overlapped", "overlapped"]);
        assert_eq!(outcomes(&db, "allow").await[..3], ["enqueued"; 3]);
        assert_eq!(outcomes(&db, "queue").await[..3], ["enqueued"; 3]);
        let at_once = |name| format!("select count(*) from queue.fire f join effect e on e.job = f.job where f.name = '{name}'");
        assert!(db.count(&at_once("allow")).await >= 3);
        assert_eq!(db.count(&at_once("queue")).await, 1, "one behind the other");
        for name in ["skip", "allow", "queue"] {
            Queue::new(&db.pool).store(STORE()).schedule(name).delete().await.unwrap();
        }
        queue_core::Queue::new(&db.pool).store(STORE()).jobs().matching(&queue_core::operate::Filter::default()).cancel().await.unwrap();
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn jitter_delays_the_job_of_each_tick_by_a_random_part() {
    let db = TestDb::new().await;
    let spread =
        Schedule::every(Duration::from_secs(1)).jitter(Duration::from_hours(1)).overlap(Overlap::Allow).missed(Missed::CatchUp(50));
    Queue::new(&db.pool).store(STORE()).schedule("spread").create(&spread.job(&quick())).await.unwrap();
    db.run_while(sleeper(&db), async {
        planned(&db, "spread").await;
        without_workers(&db, "spread", "1 h").await;
        eventually("ticks have fired", async || fires(&db, "spread").await.len() >= 50).await;
    })
    .await;
    let put_off = "select count(distinct put_off) from (select extract(epoch from s.run_at - f.tick) as put_off
      from queue.fire f join queue.scheduled s on s.id = f.job) p where put_off between 0 and 3600";
    assert!(db.count(put_off).await > 40, "they are spread");
    assert_eq!(
        db.count("select count(*) from queue.scheduled s join queue.fire f on f.job = s.id where s.run_at > f.tick + interval '1 h'").await,
        0
    );
    sqlx::query("delete from queue.schedule").execute(&db.pool).await.unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_schedule_is_paused_resumed_skipped_and_run_now() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).store(STORE()).schedule("far").create(&Schedule::cron("0 0 1 1 *").job(&quick())).await.unwrap();
    let unknown = Queue::new(&db.pool).store(STORE()).schedule("far").skip_next().await.unwrap_err();
    assert!(unknown.to_string().contains("until a worker computes it"), "{unknown}");
    db.run_while(sleeper(&db), async {
        let next = planned(&db, "far").await;
        assert_eq!(Queue::new(&db.pool).store(STORE()).schedule("far").skip_next().await.unwrap(), next);
        assert_eq!(Queue::new(&db.pool).store(STORE()).schedule("far").skip_next().await.unwrap(), next, "the same tick");
        let found = Queue::new(&db.pool).store(STORE()).schedule("far").find().await.unwrap();
        assert_eq!((found.skip_at, found.next(1)[0] > next), (Some(next), true));
        let job = Queue::new(&db.pool).store(STORE()).schedule("far").run_now().await.unwrap();
        db.until(job, queue_core::JobState::Completed).await;
        Queue::new(&db.pool).store(STORE()).schedule("far").pause().await.unwrap();
        assert!(Queue::new(&db.pool).store(STORE()).schedule("far").find().await.unwrap().next(3).is_empty());
        without_workers(&db, "far", "1 h").await;
        Queue::new(&db.pool).store(STORE()).schedule("second").create(&each_second()).await.unwrap();
        eventually("others fire meanwhile", async || fires(&db, "second").await.len() >= 2).await;
        assert_eq!(outcomes(&db, "far").await, ["run_now"], "a pause");
        Queue::new(&db.pool).store(STORE()).schedule("far").resume().await.unwrap();
        eventually("its next tick is known", async || {
            Queue::new(&db.pool).store(STORE()).schedule("far").find().await.unwrap().next_at == Some(next)
        })
        .await;
        assert_eq!(outcomes(&db, "far").await, ["run_now"], "ticks of the pause have passed");
        let later = Queue::new(&db.pool).store(STORE()).schedule("second").skip_next().await.unwrap();
        eventually("the skipped tick is past", async || fires(&db, "second").await.iter().any(|fire| fire.tick > later)).await;
        let skipped: Vec<TickRecord> = fires(&db, "second").await.into_iter().filter(|fire| fire.tick == later).collect();
        assert_eq!((skipped[0].outcome.as_str(), skipped[0].job), ("skipped", None));
        for name in ["far", "second"] {
            Queue::new(&db.pool).store(STORE()).schedule(name).delete().await.unwrap();
        }
    })
    .await;
    for refused in [
        Queue::new(&db.pool).store(STORE()).schedule("none").pause().await,
        Queue::new(&db.pool).store(STORE()).schedule("none").resume().await,
        Queue::new(&db.pool).store(STORE()).schedule("none").delete().await,
        Queue::new(&db.pool).store(STORE()).schedule("none").run_now().await.map(drop),
        Queue::new(&db.pool).store(STORE()).schedule("none").skip_next().await.map(drop),
        Queue::new(&db.pool).store(STORE()).schedule("none").find().await.map(drop),
    ] {
        assert!(matches!(&refused, Err(queue_core::Error::NoSchedule { name }) if name == "none"), "{refused:?}");
    }
    db.finish().await;
}
