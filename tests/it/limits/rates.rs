//! Tests rate limits. No window contains more starts than its rate allows. Also tests handlers that fail with `slow_down`.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use queue_core::{
    Context, Failure, Handler, Job as _, JobResult, job,
    middleware::{AttemptOutput, Middleware, Next, async_trait},
    options::Limit,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{Marked, TestDb, WorkerProcess, eventually};

use super::{BEGUN, ENDED, Unlimited, begun, fresh, most_within, set, span, worker};

/// Job whose first attempt fails with `slow_down` if `refuse` is set, as if a service had returned status 429.
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

/// Job with a rate limit for each key.
#[job(limit(key = self.key, rate = "6/600ms", burst = 3))]
#[derive(Serialize, Deserialize)]
pub(super) struct RatedByKey {
    pub(super) key: String,
}

impl Handler for RatedByKey {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 0).await
    }
}

fn rated(db: &TestDb) -> Worker {
    worker(db).register::<RatedByKey>()
}

/// The handlers on three workers record the start times. Their clock is also the clock of the database server, because all processes
/// share one machine.
#[tokio::test]
#[ignore = "deep"]
async fn no_window_has_more_starts_than_the_rate_nor_a_short_one_more_than_the_burst_of_all_or_of_each_key() {
    let second = Duration::from_secs(1);
    for (limit, rate, jobs, each, windows) in [
        ("type:unlimited", Limit::new().rate(10, second), 35, "true", &[(1000, 10)][..]),
        ("queue:default", Limit::new().rate(20, 2 * second).burst(2), 16, "true", &[(2000, 20), (200, 2)]),
        // This limit does not apply to these jobs, so only the keyed rate declared in code applies.
        ("another", Limit::new().rate(1, second), 48, "line", &[(600, 6), (300, 3)]),
    ] {
        let db = fresh().await;
        set(&db, limit, rate).await;
        for n in 0..jobs {
            if each == "line" {
                RatedByKey { key: format!("key {}", n % 3) }.enqueue(&db.pool).await.unwrap();
            } else {
                Unlimited { ms: 5 }.enqueue(&db.pool).await.unwrap();
            }
        }
        db.run_while(rated(&db), db.run_while(rated(&db), db.run_while(rated(&db), db.until_count(ENDED, jobs)))).await;
        for (ms, most) in windows {
            let found = most_within(&db, each, *ms).await;
            assert!(found <= *most, "{limit}: {found} in {ms} ms");
        }
        assert_eq!(db.count(BEGUN).await, jobs, "each once");
        assert_eq!(db.count("select count(*) from queue.done where attempts > 1").await, 0, "what goes back is not charged");
        db.finish().await;
    }
}

/// Middleware that delays the handlers of the first ten attempts until claimed jobs may no longer start.
struct DelayingMiddleware(AtomicUsize);

#[async_trait]
impl Middleware for DelayingMiddleware {
    async fn attempt(&self, _: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        if self.0.fetch_add(1, Relaxed) < 10 {
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        next.run().await
    }
}

#[tokio::test]
async fn jobs_delayed_by_middleware_are_released_uncharged_and_do_not_begin_with_later_ones() {
    let db = fresh().await;
    set(&db, "type:unlimited", Limit::new().rate(10, Duration::from_secs(1))).await;
    for _ in 0..20 {
        Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
    }
    db.run_until_idle(worker(&db).middleware(DelayingMiddleware(AtomicUsize::new(0)))).await;
    let most = most_within(&db, "true", 1000).await;
    assert!(most <= 10, "{most} in a second");
    assert_eq!(db.count(BEGUN).await, 20);
    assert_eq!(db.count("select count(*) from queue.done where attempts > 1").await, 0);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_window_has_more_starts_than_the_rate_while_processes_freeze_repeatedly() {
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
        // The pause is longer than the time from a claim to the start of its jobs. Each pause ends at a different point of the window.
        tokio::time::sleep(Duration::from_millis(120 + fastrand::u64(..100))).await;
        workers[stops % 2].signal("CONT");
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..150))).await;
        stops += 1;
        assert!(stops < 400, "nothing begins any more");
    }
    let most = "select max((select count(*) from effect o where o.at >= s.at and o.at < s.at + interval '1 s')) from effect s";
    let most = db.count(most).await;
    assert!(stops >= 10 && most <= 20, "{most} in a second, {stops} stops");
    drop(workers);
    db.finish().await;
}

#[tokio::test]
async fn a_handler_that_slows_down_slows_everything_under_its_limit_and_its_attempt_is_charged() {
    let db = fresh().await;
    let worker = || Worker::new(db.pool.clone()).register::<Refused>().register::<Unlimited>();
    db.run("create table asked as select clock_timestamp() as at").await;
    db.run_while(
        worker(),
        db.run_while(worker(), async {
            Refused { refuse: true }.enqueue(&db.pool).await.unwrap();
            db.until_count("select count(*) from queue.limiter where not_before > now()", 1).await;
            for _ in 0..5 {
                Refused { refuse: false }.enqueue(&db.pool).await.unwrap();
                Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap();
            }
            db.until_count(&begun("job_type = 'unlimited'"), 5).await;
            db.until_count(&begun("job_type = 'refused'"), 6).await;
            let waits = "select count(*) from queue.limiter g, asked a where g.not_before >= a.at + interval '1500 ms'";
            let early = "select count(*) from queue.limiter g, effect_span s where s.job_type = 'refused' and s.began < g.not_before";
            assert_eq!((db.count(waits).await, db.count(early).await), (1, 0));
            db.until_count("select count(*) from queue.done where attempts = 2", 1).await;
        }),
    )
    .await;
    db.finish().await;
}
