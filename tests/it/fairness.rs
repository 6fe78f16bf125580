//! Tests claim order and starvation: priority, aging, and slow queues next to fast queues.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{Context, Handler, Job as _, JobResult, JobState, Priority, job};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{Act, Do, TestDb, eventually};

/// High-priority job that enqueues its own successor before it ends, so that such a job is always waiting.
#[job(send_only, priority = 200)]
#[derive(Serialize, Deserialize)]
struct Again;

impl Handler for Again {
    async fn run(self, cx: &Context) -> JobResult {
        Self.enqueue(cx.pool()).await?;
        Ok(())
    }
}

/// Returns a worker that has one slot and claims only two jobs at a time, so that most of the urgent jobs stay ready.
fn narrow(db: &TestDb) -> Worker {
    let mut config = Config::default();
    (config.concurrency, config.batch) = (1, 2);
    Worker::new(db.pool.clone()).config(config).register::<Again>().register::<Do>().register::<Numbered>()
}

async fn keep_coming(db: &TestDb) {
    Again::enqueue_all((0..40).map(|_| Again), &db.pool).await.unwrap();
}

/// Counts the finished urgent jobs.
async fn again(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.jobs where job_type = 'again' and state = 'completed'").await
}

#[tokio::test]
async fn without_aging_a_stream_of_urgent_jobs_starves_others() {
    let db = TestDb::new().await;
    let patient = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).priority(Priority::BACKFILL).await.unwrap().id();
    keep_coming(&db).await;
    db.run_while(narrow(&db), eventually("many urgent ones have finished", async || again(&db).await > 200)).await;
    assert_eq!(db.state(patient).await, Some(JobState::Ready));
    db.finish().await;
}

#[tokio::test]
async fn with_aging_a_stream_of_urgent_jobs_does_not_starve_others() {
    let db = TestDb::new().await;
    let mut patient = Vec::new();
    for priority in [Priority::BACKFILL, Priority::DISCOVERED, i16::MIN] {
        patient.push(Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).priority(priority).await.unwrap().id());
    }
    keep_coming(&db).await;
    db.run_while(narrow(&db).aging(Duration::from_millis(100)), async {
        for job in patient {
            db.until(job, JobState::Completed).await;
        }
        let waiting = db.count("select count(*) from queue.ready").await;
        assert!(waiting > 20, "urgent ones were waiting all the time, now {waiting}");
        assert!(again(&db).await > 0, "and went on");
    })
    .await;
    db.finish().await;
}

/// Job that records its number.
#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Numbered(i16);

impl Handler for Numbered {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Arc<Mutex<Vec<i16>>>>().lock().unwrap().push(self.0);
        Ok(())
    }
}

#[tokio::test]
async fn higher_priorities_run_first_and_equal_ones_in_order() {
    let db = TestDb::new().await;
    let priorities = [30, 100, 150, -7, 32767];
    for n in 0..50_i16 {
        Numbered(n).enqueue(&db.pool).priority(priorities[usize::from(n.unsigned_abs()) % 5]).await.unwrap();
    }
    let seen: Arc<Mutex<Vec<i16>>> = Arc::default();
    db.run_until_idle(narrow(&db).state(Arc::clone(&seen))).await;
    let mut expected: Vec<i16> = (0..50).collect();
    expected.sort_by_key(|n| std::cmp::Reverse(priorities[usize::from(n.unsigned_abs()) % 5]));
    assert_eq!(*seen.lock().unwrap(), expected);
    db.finish().await;
}

/// Job whose handler never returns.
#[job(send_only, queue = "slow", priority = 200)]
#[derive(Serialize, Deserialize)]
struct Slow;

impl Handler for Slow {
    async fn run(self, _: &Context) -> JobResult {
        std::future::pending().await
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn a_slow_queue_takes_no_slot_from_a_fast_one() {
    for named in [true, false] {
        let db = TestDb::new().await;
        Slow::enqueue_all((0..100).map(|_| Slow), &db.pool).await.unwrap();
        let worker = Worker::new(db.pool.clone()).register::<Slow>().register::<Do>().grace(Duration::ZERO);
        let worker = if named { worker.queue("slow", 2).queue("default", 2) } else { worker.concurrency(2) };
        db.run_while(worker, async {
            eventually("the slow ones run", async || db.count("select count(*) from queue.jobs where state = 'running'").await >= 2).await;
            Do::enqueue_all((0..500).map(|_| Do { act: Act::Ok(String::new()) }), &db.pool).await.unwrap();
            eventually("all fast ones have finished", async || db.count("select count(*) from queue.done").await == 500).await;
            assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'slow' and state in ('ready', 'running')").await, 100);
        })
        .await;
        db.finish().await;
    }
}
