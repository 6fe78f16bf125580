//! Tests that a batch starts when it is full or after its maximum wait. Also tests jobs that are waiting for a batch.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use queue_core::{
    Context, Handler, Job as _, JobId, JobRef, JobResult, JobState, Queue,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    operate::{OperationOutcome, Scope},
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{TestDb, eventually, within};
use tokio::sync::Semaphore;

/// Number of jobs in each handler call.
type Sizes = Arc<Mutex<Vec<usize>>>;

/// Batch job that waits up to a minute for a full batch of three.
#[job(name = "batch_three", batch = 3, batch_wait = "1m", aliases = ["batch_drei"])]
#[derive(Serialize, Deserialize)]
struct Three;

/// Batch job that waits up to 300 ms for a fuller batch.
#[job(name = "batch_moment", batch = 100, batch_wait = "300ms", max_attempts = 2, backoff = fixed("30ms"))]
#[derive(Serialize, Deserialize)]
struct Moment {
    fails: bool,
}

/// Batch job that does not wait for a fuller batch.
#[job(name = "batch_now", batch = 40)]
#[derive(Serialize, Deserialize)]
struct Now;

/// Job type without batches.
#[job(name = "batch_single")]
#[derive(Serialize, Deserialize)]
struct Single;

impl BatchHandler for Three {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        cx.state::<Sizes>().lock().unwrap().push(batch.len());
        Ok(())
    }
}

impl BatchHandler for Moment {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        cx.state::<Sizes>().lock().unwrap().push(batch.len());
        if batch.iter().any(|job| job.payload().fails) { Err("as told".into()) } else { Ok(()) }
    }
}

impl BatchHandler for Now {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        if let Some(open) = cx.try_state::<Arc<Semaphore>>() {
            open.acquire().await?.forget();
        }
        cx.state::<Sizes>().lock().unwrap().push(batch.len());
        Ok(())
    }
}

impl Handler for Single {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Sizes>().lock().unwrap().push(1);
        Ok(())
    }
}

fn worker(db: &TestDb, sizes: &Sizes) -> Worker {
    db.worker().register_batch::<Three>().register_batch::<Moment>().register_batch::<Now>().register::<Single>().state(Arc::clone(sizes))
}

async fn three(db: &TestDb, jobs: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..jobs {
        ids.push(Three.enqueue(&db.pool).await.unwrap().id());
    }
    ids
}

async fn completed(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.jobs where state = 'completed'").await
}

async fn held(db: &TestDb) -> i64 {
    db.count("select coalesce(sum(cardinality(ids)), 0)::bigint from queue.lease").await
}

#[tokio::test]
async fn a_batch_begins_when_it_is_full_and_not_before() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    db.run_while(worker(&db, &sizes), async {
        let first = three(&db, 2).await;
        eventually("both are claimed", async || held(&db).await == 2).await;
        assert_eq!(db.state(first[0]).await, Some(JobState::Running));
        // Single jobs and batches of other types do not wait for the batch that is not full yet.
        let single = Single.enqueue(&db.pool).await.unwrap().id();
        db.until(single, JobState::Completed).await;
        let moment = Moment { fails: false }.enqueue(&db.pool).await.unwrap().id();
        db.until(moment, JobState::Completed).await;
        assert_eq!(*sizes.lock().unwrap(), [1, 1]);
        sqlx::query("select queue.enqueue(job_type => 'batch_drei', payload => 'null')").execute(&db.pool).await.unwrap();
        eventually("all have finished", async || completed(&db).await == 5).await;
        assert_eq!(*sizes.lock().unwrap(), [1, 1, 3], "an alias is the same type");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_batch_that_is_not_full_begins_after_its_wait() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    Moment::enqueue_all((0..7).map(|_| Moment { fails: false }), &db.pool).await.unwrap();
    let began = Instant::now();
    db.run_while(worker(&db, &sizes), eventually("all have finished", async || completed(&db).await == 7)).await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(*sizes.lock().unwrap(), [7]);
    db.finish().await;
}

#[tokio::test]
async fn without_a_wait_a_free_slot_takes_the_available_jobs() {
    let (db, sizes, open) = (TestDb::new().await, Sizes::default(), Arc::new(Semaphore::new(0)));
    Now::enqueue_all((0..100).map(|_| Now), &db.pool).await.unwrap();
    db.run_while(worker(&db, &sizes).state(Arc::clone(&open)).concurrency(2), async {
        eventually("two slots have a batch", async || held(&db).await >= 80).await;
        Now.enqueue(&db.pool).await.unwrap();
        open.add_permits(100);
        eventually("all have finished", async || completed(&db).await == 101).await;
    })
    .await;
    let sizes = sizes.lock().unwrap().clone();
    assert_eq!(sizes[..2], [40, 40], "{sizes:?}");
    assert!(sizes.len() <= 4 && sizes.iter().sum::<usize>() == 101, "{sizes:?}");
    db.finish().await;
}

#[tokio::test]
async fn the_last_attempt_of_each_job_runs_alone() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    Moment::enqueue_all((0..6).map(|number| Moment { fails: number == 2 }), &db.pool).await.unwrap();
    Moment { fails: false }.enqueue(&db.pool).max_attempts(1).await.unwrap();
    let finished = "select count(*) from queue.jobs where state in ('completed', 'dead')";
    db.run_while(worker(&db, &sizes), eventually("all have finished", async || db.count(finished).await == 7)).await;
    assert_eq!(completed(&db).await, 6);
    let mut sizes = sizes.lock().unwrap().clone();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 1, 1, 1, 1, 1, 1, 6]);
    db.finish().await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_fuller_batch() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    three(&db, 2).await;
    // If the shutdown waited for a fuller batch, the test would time out.
    db.run_while(worker(&db, &sizes).grace(Duration::from_hours(1)), async {
        eventually("both are claimed", async || held(&db).await == 2).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.ready where attempts = 0").await, 2);
    assert!(sizes.lock().unwrap().is_empty());
    db.finish().await;
}

#[tokio::test]
async fn paused_and_cancelled_jobs_leave_the_batch_that_they_wait_for() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    db.run_while(worker(&db, &sizes), async {
        let jobs = three(&db, 2).await;
        eventually("both are claimed", async || held(&db).await == 2).await;
        let acted = JobRef::from_id(jobs[0]).cancel(&mut PgConnection::connect(&db.url).await.unwrap()).await.unwrap();
        assert!(matches!(acted, OperationOutcome::Cancelling | OperationOutcome::Done), "{acted:?}");
        db.until(jobs[0], JobState::Cancelled).await;
        let scope = Scope::job_type("batch_three");
        Queue::new(&db.pool).pause(&scope).await.unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(30), Queue::new(&db.pool).until_paused(&scope)).await;
        assert!(stopped.unwrap().unwrap());
        // The worker acknowledges the pause immediately. The next settle releases the job that was waiting for a batch.
        db.until(jobs[1], JobState::Ready).await;
        assert_eq!(db.count("select count(*) from queue.ready where attempts = 0").await, 1, "uncharged");
        assert!(Queue::new(&db.pool).resume(&scope).await.unwrap());
        three(&db, 2).await;
        eventually("the rest has finished", async || completed(&db).await == 3).await;
    })
    .await;
    assert_eq!(*sizes.lock().unwrap(), [3]);
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_loses_its_lease_forgets_what_waits_for_a_batch() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    db.run_while(worker(&db, &sizes).lease_ttl(Duration::from_secs(1)), async {
        three(&db, 2).await;
        eventually("both are claimed", async || held(&db).await == 2).await;
        sqlx::query("update queue.worker set expires_at = now() - interval '1 second'").execute(&db.pool).await.unwrap();
        // Recovered jobs run alone, not in a batch.
        eventually("both have finished", async || completed(&db).await == 2).await;
    })
    .await;
    assert_eq!(*sizes.lock().unwrap(), [1, 1]);
    db.finish().await;
}

#[tokio::test]
async fn single_jobs_and_batches_of_one_slot_take_turns() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    let both = async |count: usize| {
        let mut tx = db.pool.begin().await.unwrap();
        Now::enqueue_all((0..count).map(|_| Now), &mut *tx).await.unwrap();
        Single::enqueue_all((0..count).map(|_| Single), &mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    // Warm-up of both job types: the first claim of each type is slow and must not distort the measured order of the jobs.
    both(50).await;
    db.run_while(worker(&db, &sizes).concurrency(1), async {
        eventually("the first have finished", async || completed(&db).await == 100).await;
        sizes.lock().unwrap().clear();
        both(2000).await;
        within(Duration::from_mins(1), "all have finished", async || completed(&db).await == 4100).await;
    })
    .await;
    let sizes = sizes.lock().unwrap().clone();
    let batches = sizes.iter().filter(|size| **size > 1).count();
    // Counts the jobs of the other type that ran while the first 1,800 of 2,000 jobs of the selected type ran.
    let by_then = |of_batches: bool| {
        let (mut these, mut others) = (0, 0);
        for size in &sizes {
            match (*size > 1) == of_batches {
                true if these < 1800 => these += size,
                false if these < 1800 => others += size,
                _ => {}
            }
        }
        others
    };
    println!(
        "{batches} batches; {} single jobs by nine tenths of theirs, {} of theirs by nine tenths of the single jobs",
        by_then(true),
        by_then(false)
    );
    assert!(by_then(true) >= 20 && by_then(false) >= 200, "neither waits for all of the other: {:?}", &sizes[..200]);
    assert!(batches <= 100, "batches are full or nearly so: {batches} for 2,000 jobs");
    db.finish().await;
}

#[tokio::test]
async fn two_workers_share_the_jobs_and_none_runs_twice() {
    let (db, sizes) = (TestDb::new().await, Sizes::default());
    Now::enqueue_all((0..5000).map(|_| Now), &db.pool).await.unwrap();
    let (one, other) = (worker(&db, &sizes), worker(&db, &sizes));
    Box::pin(
        db.run_while(one, db.run_while(other, within(Duration::from_mins(1), "all have finished", async || completed(&db).await == 5000))),
    )
    .await;
    assert_eq!(sizes.lock().unwrap().iter().sum::<usize>(), 5000);
    db.finish().await;
}
