//! Tests that workers count the outcome and the duration of each attempt exactly.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{
    Context, Handler, Job as _, JobId, JobRef, JobResult, JobState, job,
    operate::{AttemptStatistics, Histogram},
};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{Act, Do, Own, TestDb, Within, WorkerProcess, effects, eventually};

use super::{apart, together};

/// Job that takes longer than its timeout.
#[job(name = "history_slow", max_attempts = 1, timeout = "30ms", aliases = ["history_slow_before"])]
#[derive(Serialize, Deserialize)]
struct Slow;

impl Handler for Slow {
    async fn run(self, _: &Context) -> JobResult {
        std::future::pending().await
    }
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

fn ok() -> Act {
    Act::Ok(String::new())
}

fn all(db: &TestDb) -> Worker {
    db.worker().register::<Slow>().register::<Within>().register::<Own>().concurrency(30)
}

/// Returns two groups of counts. The first group counts attempts by outcome: completed, retried, dead, cancelled, snoozed, released,
/// expired and lost. The second group counts attempts that timed out, panicked or crashed.
fn counts(figures: &AttemptStatistics) -> ([u64; 8], [u64; 3]) {
    let AttemptStatistics {
        completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, timed_out, panicked, crashed, ..
    } = *figures;
    ([completed, retried, dead, cancelled, snoozed, released, expired, lease_lost], [timed_out, panicked, crashed])
}

/// Enqueues jobs that complete, fail, panic, snooze or time out. Some of the handlers use a transaction.
async fn enqueue_all_kinds(db: &TestDb) {
    for nth in 0..200 {
        Do { act: ok() }.enqueue(&db.pool).queue(if nth % 2 == 0 { "even" } else { "odd" }).await.unwrap();
    }
    for _ in 0..30 {
        for act in [Act::FailUntil(3), Act::Fail("always".into()), Act::Terminal("at once".into())] {
            enqueue(db, act).await;
        }
    }
    for _ in 0..20 {
        enqueue(db, Act::Panic).await;
        enqueue(db, Act::Snooze(20, 2)).await;
        Slow.enqueue(&db.pool).await.unwrap();
    }
    for _ in 0..10 {
        Within { how: "plain".into() }.enqueue(&db.pool).await.unwrap();
        Within { how: "fail first".into() }.enqueue(&db.pool).await.unwrap();
        Own { how: "plain".into() }.enqueue(&db.pool).await.unwrap();
        Own { how: "fail".into() }.enqueue(&db.pool).await.unwrap();
    }
}

#[tokio::test]
async fn two_workers_count_exactly_the_jobs_that_ran() {
    let db = TestDb::new().await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(enqueue(&db, Act::UntilCancelled(Box::new(Act::Fail("asked".into())))).await);
    }
    Box::pin(db.run_while(all(&db), async {
        for job in &waiting {
            eventually("it runs", async || effects(&db.pool, *job).await.unwrap() == 1).await;
        }
        for job in waiting {
            JobRef::from_id(job).cancel(&db.pool).await.unwrap();
        }
        enqueue_all_kinds(&db).await;
        db.run_until_idle(all(&db)).await;
    }))
    .await;

    let found: BTreeMap<(String, String), AttemptStatistics> = apart(&db, Duration::from_hours(1))
        .await
        .into_iter()
        .map(|figures| ((figures.queue.clone().unwrap(), figures.job_type.clone().unwrap()), figures))
        .collect();
    let of = |queue: &str, job_type: &str| &found[&(queue.to_owned(), job_type.to_owned())];
    assert_eq!(found.len(), 6, "{found:?}");
    for queue in ["even", "odd"] {
        assert_eq!(counts(of(queue, "do")), ([100, 0, 0, 0, 0, 0, 0, 0], [0; 3]), "{queue}");
    }
    assert_eq!(counts(of("default", "do")), ([50, 160, 80, 10, 20, 0, 0, 0], [0, 60, 0]));
    assert_eq!(counts(of("default", "history_slow")), ([0, 0, 20, 0, 0, 0, 0, 0], [20, 0, 0]));
    assert_eq!(counts(of("default", "within")), ([20, 10, 0, 0, 0, 0, 0, 0], [0; 3]));
    assert_eq!(counts(of("default", "own")), ([10, 0, 10, 0, 0, 0, 0, 0], [0; 3]));
    let sum = together(&db).await.unwrap();
    assert_eq!(counts(&sum), ([280, 170, 110, 10, 20, 0, 0, 0], [20, 60, 0]));
    assert_eq!((sum.attempts(), sum.failed(), sum.run.count(), sum.start.count()), (590, 280, 590, 590));
    assert!(of("default", "history_slow").run.quantile(0.5).unwrap() >= Duration::from_millis(20), "{:?}", sum.run);
    db.finish().await;
}

#[tokio::test]
async fn a_type_is_counted_under_its_present_name() {
    let db = TestDb::new().await;
    let old: i64 = sqlx::query_scalar("select queue.enqueue('history_slow_before', 'null')").fetch_one(&db.pool).await.unwrap();
    db.run_while(all(&db), async {
        eventually("it has timed out", async || db.count(&format!("select count(*) from queue.failure where id = {old}")).await > 0).await;
        JobRef::from_id(JobId(old)).cancel(&db.pool).await.ok();
    })
    .await;
    let names: Vec<Option<String>> = apart(&db, Duration::from_hours(1)).await.into_iter().map(|figures| figures.job_type).collect();
    assert_eq!(names, [Some("history_slow".to_owned())]);
    db.finish().await;
}

#[tokio::test]
async fn expired_jobs_are_counted_under_the_present_name_of_their_type() {
    let db = TestDb::new().await;
    for name in ["history_slow_before", "history_slow"] {
        let expires = "select queue.enqueue($1, 'null', options => '{\"expires_in\": \"1 ms\"}')";
        sqlx::query(expires).bind(name).execute(&db.pool).await.unwrap();
    }
    db.run_while(all(&db), async {
        eventually("both have expired", async || db.count("select count(*) from queue.done where expired").await == 2).await;
    })
    .await;
    let found: Vec<_> = apart(&db, Duration::from_hours(1)).await.into_iter().map(|figures| (figures.job_type, figures.expired)).collect();
    assert_eq!(found, [(Some("history_slow".to_owned()), 2)]);
    db.finish().await;
}

/// Returns the index of the only non-empty bucket.
fn only(histogram: &Histogram) -> usize {
    let full: Vec<usize> = (0..24).filter(|place| histogram.buckets()[*place] > 0).collect();
    assert_eq!(full.len(), 1, "{histogram:?}");
    full[0]
}

#[tokio::test]
#[ignore = "deep"]
async fn the_start_delay_is_the_time_a_job_was_ready_without_its_scheduled_wait() {
    let db = TestDb::new().await;
    let ready = enqueue(&db, Act::Sleep(250)).await;
    Do { act: Act::Sleep(250) }.enqueue(&db.pool).queue("fair").fair("one").await.unwrap();
    let later = Do { act: ok() }.enqueue(&db.pool).queue("later").after(Duration::from_secs(3)).await.unwrap().id();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    db.run_while(db.worker(), async {
        db.until(ready, JobState::Completed).await;
        db.until(later, JobState::Completed).await;
    })
    .await;
    for figures in apart(&db, Duration::from_hours(1)).await {
        let low = Histogram::BOUNDS_MS[only(&figures.start).max(1) - 1];
        match figures.queue.as_deref() {
            Some("later") => assert!(low < 2000, "{figures:?}"),
            _ => assert!((2000..=5000).contains(&low) && Histogram::BOUNDS_MS[only(&figures.run) - 1] >= 200, "{figures:?}"),
        }
    }
    db.finish().await;
}

#[tokio::test]
async fn interrupted_expired_and_lost_attempts_are_counted_separately() {
    let db = TestDb::new().await;
    for _ in 0..3 {
        Do { act: ok() }.enqueue(&db.pool).queue("brief").expires_in(Duration::from_millis(1)).await.unwrap();
    }
    let hangs = enqueue(&db, Act::Hang).await;
    db.run_while(db.worker().grace(Duration::ZERO), async {
        eventually("it runs", async || effects(&db.pool, hangs).await.unwrap() == 1).await;
        eventually("the others have expired", async || db.count("select count(*) from queue.done where expired").await == 3).await;
    })
    .await;
    let found = apart(&db, Duration::from_hours(1)).await;
    let of = |queue: &str| counts(found.iter().find(|figures| figures.queue.as_deref() == Some(queue)).unwrap()).0;
    assert_eq!((of("default"), of("brief")), ([0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0, 3, 0]));
    db.finish().await;
}

#[tokio::test]
async fn a_crash_is_counted_by_the_worker_that_recovers_it() {
    let db = TestDb::new().await;
    let binary = env!("CARGO_BIN_EXE_test-worker");
    let process = WorkerProcess::start(binary, &db.url, &[]);
    let hangs = enqueue(&db, Act::First(Box::new(Act::Hang), Box::new(ok()))).await;
    eventually("it runs", async || effects(&db.pool, hangs).await.unwrap() == 1).await;
    db.kill(process).await;
    db.run_while(db.worker(), db.until(hangs, JobState::Completed)).await;
    assert_eq!(counts(&together(&db).await.unwrap()), ([1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1]));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_worker_that_lost_its_lease_counts_its_lost_attempts() {
    let db = TestDb::new().await;
    let binary = env!("CARGO_BIN_EXE_test-worker");
    let mut zombie = WorkerProcess::start(binary, &db.url, &[]);
    let slow = enqueue(&db, Act::First(Box::new(Act::Sleep(1500)), Box::new(ok()))).await;
    eventually("it runs", async || effects(&db.pool, slow).await.unwrap() == 1).await;
    zombie.signal("STOP");
    db.expire_worker(&zombie).await;
    db.run_while(db.worker(), db.until(slow, JobState::Completed)).await;
    zombie.signal("CONT");
    eventually("it has found out", async || {
        db.count(&format!("select count(*) from queue.worker where pid = {} and expires_at > now()", zombie.pid())).await == 1
    })
    .await;
    zombie.signal("TERM");
    assert_eq!(zombie.wait(), Some(0));
    assert_eq!(
        counts(&together(&db).await.unwrap()),
        ([1, 1, 0, 0, 0, 0, 0, 1], [0, 0, 1]),
        "the zombie, and the worker that had the job then"
    );
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn statistics_are_written_while_a_worker_runs_and_not_by_an_idle_one() {
    let db = TestDb::new().await;
    let counted = Arc::new(Mutex::new(0_u64));
    let count = Arc::clone(&counted);
    let mut config = Config::default();
    (config.pace, config.grace) = (20, Duration::from_secs(2));
    let worker = Worker::new(db.pool.clone()).config(config).register::<Do>().on_outcome(move |_| *count.lock().unwrap() += 1);
    db.run_while(worker, async {
        let jobs = (0..50).map(|_| Do { act: ok() });
        Do::enqueue_all(jobs, &db.pool).await.unwrap();
        eventually("they are reported", async || together(&db).await.is_some_and(|sum| sum.completed == 50)).await;
    })
    .await;
    let counted = *counted.lock().unwrap();
    assert_eq!((counted, together(&db).await.unwrap().completed), (50, 50), "and once");
    db.finish().await;

    let idle = TestDb::new().await;
    let sleeps = eventually("it sleeps", async || idle.count("select count(*) from queue.idle").await == 1);
    idle.run_while(idle.worker(), sleeps).await;
    assert_eq!(idle.count("select count(*) from queue.tally_source").await, 0);
    idle.finish().await;
}
