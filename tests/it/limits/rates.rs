//! Rates: exact over what began, by whichever window; and handlers that are told to slow down.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use queue_core::{AttemptOutput, Context, Failure, Handler, Job as _, JobResult, Limit, Middleware, Next, async_trait, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{Marked, TestDb, WorkerProcess, eventually, within};

use super::{Unlimited, fresh, set, span, worker};

/// Is refused at its first attempt, as by a service that answers 429.
#[job(limit(name = "service", concurrency = 5), backoff = fixed("10ms"), max_attempts = 3)]
#[derive(Serialize, Deserialize)]
struct Refused {
    refuse: bool,
}

impl Handler for Refused {
    async fn run(self, cx: &Context) -> JobResult {
        if self.refuse && cx.attempt() == 1 {
            return Err(Failure::slow_down(Duration::from_millis(1500), "429: too many requests"));
        }
        span(cx, 0).await
    }
}

/// The most that began in any window of so many ms.
async fn most_in(db: &TestDb, ms: i32) -> i64 {
    let query = "select max((select count(*) from effect_span o where o.began >= s.began and o.began < s.began + $1 * interval '1 ms')) from effect_span s";
    sqlx::query_scalar(query).bind(ms).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn no_window_has_more_starts_than_the_rate_over_all_workers_and_none_is_wasted() {
    let db = fresh().await;
    set(&db, "type:unlimited", Limit::new().rate(10, Duration::from_secs(1))).await;
    for _ in 0..35 {
        Unlimited { ms: 5 }.enqueue(&db.pool).await.unwrap();
    }
    let workers = (worker(&db), worker(&db), worker(&db));
    let all = within(Duration::from_secs(30), "all have run", async || {
        db.count("select count(*) from effect_span where ended is not null").await == 35
    });
    db.run_while(workers.0, db.run_while(workers.1, db.run_while(workers.2, all))).await;
    assert!(most_in(&db, 1000).await <= 10, "{} in a second", most_in(&db, 1000).await);
    let took = db.count("select (extract(epoch from max(began) - min(began)) * 1000)::bigint from effect_span").await;
    eprintln!("35 jobs at 10 a second took {took} ms");
    assert!((3000..8000).contains(&took), "{took} ms");
    assert_eq!(db.count("select count(*) from queue.done where attempts > 1").await, 0, "what goes back is not charged");
    db.finish().await;
}

/// Keeps the first attempts waiting before their handlers, for longer than a rate counts them.
struct Dawdling(AtomicUsize);

#[async_trait]
impl Middleware for Dawdling {
    async fn attempt(&self, _: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        if self.0.fetch_add(1, Relaxed) < 10 {
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        next.run().await
    }
}

#[tokio::test]
async fn what_its_middleware_keeps_waiting_goes_back_uncharged_and_does_not_begin_with_those_that_come_later() {
    let db = fresh().await;
    set(&db, "type:unlimited", Limit::new().rate(10, Duration::from_secs(1))).await;
    for _ in 0..20 {
        Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
    }
    db.run_until_idle(worker(&db).middleware(Dawdling(AtomicUsize::new(0)))).await;
    assert_eq!(db.count("select count(*) from effect_span").await, 20);
    assert!(most_in(&db, 1000).await <= 10, "{} in a second", most_in(&db, 1000).await);
    assert_eq!(db.count("select count(*) from queue.done where attempts > 1").await, 0);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_window_has_more_starts_than_the_rate_while_processes_stand_still_time_and_again() {
    const JOBS: i64 = 90;
    let db = TestDb::new().await;
    set(&db, "type:marked", Limit::new().rate(20, Duration::from_secs(1))).await;
    for _ in 0..JOBS {
        Marked { ms: 1 }.enqueue(&db.pool).await.unwrap();
    }
    let workers = [0, 1].map(|_| WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]));
    let begun = async || db.count("select count(*) from effect").await;
    eventually("some have begun", async || begun().await > 0).await;
    let mut stops = 0;
    while begun().await < JOBS {
        workers[stops % 2].signal("STOP");
        // Longer than the time from a claim to its jobs' beginning, and at another moment of the window each time.
        tokio::time::sleep(Duration::from_millis(120 + fastrand::u64(..100))).await;
        workers[stops % 2].signal("CONT");
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..150))).await;
        stops += 1;
        assert!(stops < 400, "nothing begins any more");
    }
    let most = "select max((select count(*) from effect o where o.at >= s.at and o.at < s.at + interval '1 s')) from effect s";
    let most = db.count(most).await;
    eprintln!("{stops} stops, {most} starts in a second at most");
    assert!(stops >= 10 && most <= 20, "{most} in a second, {stops} stops");
    drop(workers);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_burst_is_what_may_begin_close_together() {
    let db = fresh().await;
    set(&db, "queue:default", Limit::new().rate(20, Duration::from_secs(2)).burst(2)).await;
    for _ in 0..16 {
        Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
    }
    db.run_until_idle(worker(&db)).await;
    assert_eq!(db.count("select count(*) from effect_span").await, 16);
    assert!(most_in(&db, 200).await <= 2);
    db.finish().await;
}

#[tokio::test]
async fn a_handler_that_is_told_to_slow_down_slows_all_that_its_limit_covers_and_its_attempt_is_charged() {
    let db = fresh().await;
    let worker = || Worker::new(db.pool.clone()).register::<Refused>().register::<Unlimited>();
    db.run_while(
        worker(),
        db.run_while(worker(), async {
            let slow = Refused { refuse: true }.enqueue(&db.pool).await.unwrap().id();
            eventually("it was refused", async || db.count("select count(*) from queue.gate where not_before > now()").await == 1).await;
            for _ in 0..5 {
                Refused { refuse: false }.enqueue(&db.pool).await.unwrap();
                Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
            }
            eventually("others go on", async || db.count("select count(*) from effect_span where job_type = 'unlimited'").await == 5).await;
            eventually("all have run", async || db.count("select count(*) from effect_span where job_type = 'refused'").await == 6).await;
            let id: i64 = slow.to_string().parse().unwrap();
            let failed: chrono::DateTime<chrono::Utc> =
                sqlx::query_scalar("select at from queue.failure where id = $1").bind(id).fetch_one(&db.pool).await.unwrap();
            let first: chrono::DateTime<chrono::Utc> =
                sqlx::query_scalar("select min(began) from effect_span where job_type = 'refused'").fetch_one(&db.pool).await.unwrap();
            let waited = (first - failed).num_milliseconds();
            assert!(waited >= 1400, "the limit waited for {waited} ms");
            eventually("its verdict is written", async || db.count("select count(*) from queue.done where attempts = 2").await == 1).await;
        }),
    )
    .await;
    db.finish().await;
}
