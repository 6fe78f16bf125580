//! Tests the start times and the order of jobs. No job runs before its time by the database's clock, and an idle worker wakes up when a
//! job is due. Jobs run by priority, then by age.

use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::{Job as _, JobId, JobState, Priority};
use queue_worker::{Config, Worker};
use sqlx::Executor as _;
use tests::{Act, Do, TestDb, eventually, within};

fn quick() -> Do {
    Do { act: Act::Ok(String::new()) }
}

/// Returns a worker that polls once an hour, so that no poll finds a due job in time.
fn sleeper(db: &TestDb) -> Worker {
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    Worker::new(db.pool.clone()).config(config).register::<Do>()
}

async fn asleep(db: &TestDb) {
    eventually("the worker sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
}

/// Returns the jobs in the order in which they began.
async fn began(db: &TestDb) -> Vec<JobId> {
    sqlx::query_scalar("select job from effect order by at").fetch_all(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_job_with_a_wait_starts_on_an_idle_worker_and_not_before_its_time() {
    let db = TestDb::new().await;
    db.run_while(sleeper(&db), async {
        asleep(&db).await;
        for ms in [300, 30, 0] {
            let mut tx = db.pool.begin().await.unwrap();
            let before: DateTime<Utc> = sqlx::query_scalar("select clock_timestamp()").fetch_one(&mut *tx).await.unwrap();
            let job = quick().enqueue(&mut tx).after(Duration::from_millis(ms)).await.unwrap().id();
            let due = "select coalesce((select run_at from queue.scheduled where id = $1), $2)";
            let due: DateTime<Utc> = sqlx::query_scalar(due).bind(job).bind(before).fetch_one(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
            db.until(job, JobState::Completed).await;
            let at: DateTime<Utc> = sqlx::query_scalar("select at from effect where job = $1").bind(job).fetch_one(&db.pool).await.unwrap();
            assert!(
                at >= due && at >= before + Duration::from_millis(ms),
                "enqueued after {before} to run in {ms} ms, at {due}; ran at {at}"
            );
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_sleeps_until_a_far_job_wakes_for_a_nearer_one() {
    let db = TestDb::new().await;
    let far = quick().enqueue(&db.pool).after(Duration::from_mins(30)).await.unwrap().id();
    db.run_while(sleeper(&db).concurrency(1), async {
        asleep(&db).await;
        let nearer = quick().enqueue(&db.pool).after(Duration::from_millis(400)).await.unwrap().id();
        let nearest = quick().enqueue(&db.pool).after(Duration::from_millis(200)).await.unwrap().id();
        db.until(nearer, JobState::Completed).await;
        assert_eq!(began(&db).await, [nearest, nearer]);
    })
    .await;
    assert_eq!(db.state(far).await, Some(JobState::Scheduled), "far schedules stay");
    db.finish().await;
}

#[tokio::test]
async fn a_job_whose_time_moves_while_a_worker_waits_for_it_runs_at_the_later_time() {
    let db = TestDb::new().await;
    // To the worker, moving `run_at` to a later time has the same effect as setting the clock back.
    let later = "update queue.scheduled set run_at = run_at + interval '20 ms'";
    db.run_while(sleeper(&db), async {
        asleep(&db).await;
        for ms in 0..20 {
            let job = quick().enqueue(&db.pool).after(Duration::from_millis(20)).await.unwrap().id();
            let ready = quick().enqueue(&db.pool).await.unwrap().id();
            tokio::time::sleep(Duration::from_millis(ms)).await;
            sqlx::query(later).execute(&db.pool).await.unwrap();
            db.until(job, JobState::Completed).await;
            db.until(ready, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_retry_waits_its_backoff_after_the_failure() {
    let db = TestDb::new().await;
    let (job, patient) = (Act::FailUntil(3), Act::First(Box::new(Act::RetryIn(300)), Box::new(Act::Ok(String::new()))));
    let ids = [job, patient].map(|act| Do { act });
    db.run_while(sleeper(&db), async {
        asleep(&db).await;
        for (job, waits) in ids.into_iter().zip([vec![50, 50], vec![300]]) {
            let id = job.enqueue(&db.pool).await.unwrap().id();
            db.until(id, JobState::Completed).await;
            let pauses: Vec<f64> = sqlx::query_scalar(
                "select extract(epoch from e.at - f.at)::float8 * 1000
                 from queue.failure f join effect e on e.job = f.id and e.attempt = f.attempt + 1 where f.id = $1 order by f.attempt",
            )
            .bind(id)
            .fetch_all(&db.pool)
            .await
            .unwrap();
            assert_eq!(pauses.len(), waits.len());
            assert!(pauses.iter().zip(waits).all(|(pause, wait)| *pause >= f64::from(wait)), "{pauses:?} ms");
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_time_that_has_passed_is_now() {
    let db = TestDb::new().await;
    let old = quick().enqueue(&db.pool).at(DateTime::UNIX_EPOCH).await.unwrap().id();
    assert_eq!(db.state(old).await, Some(JobState::Ready));
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(old).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn many_jobs_due_together_run_in_the_order_of_their_times() {
    let db = TestDb::new().await;
    let statement =
        "select count(queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}', jsonb_build_object('run_at', now() + interval '1 hour' + n * interval '1 us')))
        from generate_series(1, 2500) n";
    assert_eq!(db.count(statement).await, 2500);
    // The jobs are scheduled an hour ahead and then moved back by an hour, so none becomes due before the last one is enqueued.
    sqlx::query("update queue.scheduled set run_at = run_at - interval '1 hour'").execute(&db.pool).await.unwrap();
    db.run_while(db.worker().concurrency(1), async {
        tests::within(Duration::from_mins(1), "all have run", async || db.count("select count(*) from queue.done").await == 2500).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from (select job - lag(job) over (order by at) as step from effect) s where step < 0").await, 0);
    assert_eq!(db.count("select count(*) from effect").await, 2500, "each once");
    db.finish().await;
}

#[tokio::test]
async fn higher_priorities_run_first() {
    let db = TestDb::new().await;
    let priorities = [Priority::BACKFILL, Priority::DISCOVERED, Priority::EXPLICIT, i16::MIN, i16::MAX, -1, 0];
    let mut jobs = Vec::new();
    for _ in 0..5 {
        for priority in priorities {
            jobs.push((priority, quick().enqueue(&db.pool).priority(priority).await.unwrap().id()));
        }
    }
    db.run_until_idle(db.worker().concurrency(1)).await;
    let priority = |id| jobs.iter().find(|(_, job)| *job == id).map(|(priority, _)| *priority);
    let order: Vec<i16> = began(&db).await.into_iter().filter_map(priority).collect();
    let mut expected: Vec<i16> = jobs.iter().map(|(priority, _)| *priority).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(order, expected);
    db.finish().await;
}

#[tokio::test]
async fn a_lane_is_served_in_the_order_of_age() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..200 {
        jobs.push(quick().enqueue(&db.pool).await.unwrap().id());
    }
    db.run_until_idle(db.worker().concurrency(1)).await;
    assert_eq!(began(&db).await, jobs);
    db.finish().await;
}

#[tokio::test]
async fn an_urgent_job_overtakes_a_long_backlog() {
    let db = TestDb::new().await;
    let backlog = "select count(queue.enqueue('do', '{\"act\": {\"Sleep\": 5}}', '{\"priority\": 30}')) from generate_series(1, 2000)";
    assert_eq!(db.count(backlog).await, 2000);
    db.run_while(db.worker().concurrency(2), async {
        eventually("the backlog is being worked on", async || db.count("select count(*) from queue.done").await > 20).await;
        let urgent = quick().enqueue(&db.pool).priority(Priority::EXPLICIT).await.unwrap().id();
        db.until(urgent, JobState::Completed).await;
        assert!(db.count("select count(*) from queue.ready").await > 1000, "most of the backlog waits still");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn while_very_many_jobs_become_due_handlers_begin_and_a_worker_stops() {
    let db = TestDb::new().await;
    let jobs = "select count(queue.enqueue('do', '{\"act\": {\"Ok\": \"\"}}')) from generate_series(1, 100000)";
    assert_eq!(db.count(jobs).await, 100_000);
    let due = "with moved as (delete from queue.ready returning id, lane)
               insert into queue.scheduled (run_at, id, lane) select now() - interval '1 s', id, lane from moved";
    db.pool.execute(due).await.unwrap();
    let waiting = "select count(*) from queue.scheduled";
    db.run_while(db.worker().grace(Duration::from_secs(1)), async {
        eventually("a handler has begun", async || db.count("select count(*) from effect").await > 0).await;
        assert!(db.count(waiting).await > 0, "handlers have waited for all that was due");
    })
    .await;
    assert!(db.count(waiting).await > 0, "the end has waited for all that was due");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn all_due_jobs_become_ready_although_no_slot_is_free() {
    let db = TestDb::new().await;
    let jobs = "select count(queue.enqueue('do', '{\"act\": \"Hang\"}')) from generate_series(1, 20000)";
    assert_eq!(db.count(jobs).await, 20_000);
    let due = "with moved as (delete from queue.ready returning id, lane)
               insert into queue.scheduled (run_at, id, lane) select now() - interval '1 s', id, lane from moved";
    db.pool.execute(due).await.unwrap();
    db.run_while(db.worker().concurrency(1).grace(Duration::ZERO), async {
        let are_ready = async || db.count("select count(*) from queue.scheduled").await == 0;
        within(Duration::from_mins(1), "all are ready", are_ready).await;
    })
    .await;
    db.finish().await;
}
