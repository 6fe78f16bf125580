//! Tests limits in combination with batches, `slow_down` and expiry times.

use std::time::Duration;

use queue_core::{
    Context, Failure, Handler, Job as _, JobId, JobResult, JobState,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    options::Limit,
};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

use super::{BEGUN, Limited, fresh, held_equals_the_leases, most_at_once, most_within, set, span, worker};

/// Batch job. The handler records when each job begins and ends. The payload specifies the outcome.
#[job(batch = 10, batch_wait = "100ms", limit(name = "together", concurrency = 6), max_attempts = 4, backoff = fixed("10ms"))]
#[derive(Serialize, Deserialize)]
struct Together {
    how: How,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum How {
    Fine,
    /// The first attempt of the job fails with `slow_down`.
    Refused,
    /// On the first attempt of the job, the handler fails with `slow_down` for the whole batch.
    AllRefused,
}

const REFUSED: Duration = Duration::from_millis(1500);

impl BatchHandler for Together {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let now = chrono::Utc::now();
        let ids: Vec<JobId> = batch.iter().map(|job| job.id()).collect();
        let begun = "insert into effect_span (job, job_type, began) select j, 'together', $2 from unnest($1::bigint[]) j";
        sqlx::query(begun).bind(&ids).bind(now).execute(cx.pool()).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let ended = "update effect_span set ended = clock_timestamp() where job = any ($1) and ended is null";
        sqlx::query(ended).bind(&ids).execute(cx.pool()).await?;
        let refused = |how| batch.iter().any(|job| job.payload().how == how && job.attempt() == 1);
        if refused(How::AllRefused) {
            return Err(Failure::slow_down(REFUSED, "429"));
        }
        for job in batch.iter_mut().filter(|job| job.payload().how == How::Refused && job.attempt() == 1) {
            job.fail(Failure::slow_down(REFUSED, "429"));
        }
        Ok(())
    }
}

fn batches(db: &TestDb) -> Worker {
    worker(db).register_batch::<Together>()
}

async fn enqueue(db: &TestDb, all: &[How]) {
    Together::enqueue_all(all.iter().map(|how| Together { how: *how }), &db.pool).await.unwrap();
}

const TOGETHER: &str = "select coalesce(max(n), 0)::bigint from (select count(*) as n from effect_span group by began) b";

#[tokio::test]
async fn each_job_of_a_batch_holds_a_permit() {
    let db = fresh().await;
    enqueue(&db, &[How::Fine; 40]).await;
    let (one, two) = (batches(&db), batches(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    let (most, together) = (most_at_once(&db, "true").await, db.count(TOGETHER).await);
    assert!(most <= 6 && (2..=6).contains(&together), "{most} concurrently, {together} in a batch");
    assert_eq!(db.count(BEGUN).await, 40);
    held_equals_the_leases(&db).await;
    db.finish().await;
}

/// Job type without batches, under the limit of the batches.
#[job(name = "limits_beside_batches", send_only, limit(name = "together"))]
#[derive(Serialize, Deserialize)]
struct Beside;

impl Handler for Beside {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 5).await
    }
}

/// Batch job that waits longer for a full batch than a claim takes on a busy machine.
#[job(name = "limits_full_batches", batch = 10, batch_wait = "10s", limit(name = "together"))]
#[derive(Serialize, Deserialize)]
struct Full;

impl BatchHandler for Full {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let ids: Vec<JobId> = batch.iter().map(|job| job.id()).collect();
        let ran = "insert into effect_span (job, job_type, began, ended) select j, 'full', now(), now() from unnest($1::bigint[]) j";
        sqlx::query(ran).bind(&ids).execute(cx.pool()).await?;
        Ok(())
    }
}

#[tokio::test]
async fn batches_under_a_limit_are_as_large_as_those_without_one() {
    for others in [0, 30] {
        let db = fresh().await;
        set(&db, "together", Limit::new().concurrency(20)).await;
        let mut config = Config::default();
        config.concurrency = 2;
        let worker = Worker::new(db.pool.clone()).config(config).register_batch::<Full>().register::<Beside>();
        Full::enqueue_all((0..60).map(|_| Full), &db.pool).await.unwrap();
        Beside::enqueue_all((0..others).map(|_| Beside), &db.pool).await.unwrap();
        db.run_until_idle(worker).await;
        let batches = db.count("select count(distinct began) from effect_span where job_type = 'full'").await;
        assert_eq!(batches, 6, "all are full, beside {others} others");
        assert_eq!(db.count(BEGUN).await, 60 + others);
        assert!(most_at_once(&db, "true").await <= 20);
        db.finish().await;
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn under_a_rate_the_jobs_of_a_batch_handler_run_alone_and_no_window_has_more_than_the_rate() {
    let db = fresh().await;
    set(&db, "together", Limit::new().rate(10, Duration::from_millis(500))).await;
    enqueue(&db, &[How::Fine; 25]).await;
    db.run_until_idle(batches(&db)).await;
    assert_eq!((db.count(TOGETHER).await, db.count(BEGUN).await), (1, 25));
    assert!(most_within(&db, "true", 500).await <= 10);
    db.finish().await;
}

/// If a job or a batch fails with `slow_down`, all jobs under the limit wait.
#[tokio::test]
async fn a_batch_or_a_job_of_it_that_slows_down_slows_its_limit() {
    for how in [How::Refused, How::AllRefused] {
        let db = fresh().await;
        set(&db, "together", Limit::new().concurrency(20)).await;
        enqueue(&db, &[How::Fine, how, How::Fine]).await;
        db.run_while(batches(&db), async {
            db.until_count("select count(*) from queue.limiter where not_before > now()", 1).await;
            assert_eq!((db.count(TOGETHER).await, db.count(BEGUN).await), (3, 3), "in one batch");
            enqueue(&db, &[How::Fine; 5]).await;
            db.until_count("select count(*) from queue.jobs where state = 'completed'", 8).await;
        })
        .await;
        // Only the three jobs of one batch began before the limit opened again.
        let early = "select count(*) from queue.limiter g, effect_span s where s.began < g.not_before";
        let waits = "select count(*) from queue.limiter g, (select min(ended) as at from effect_span) s
            where g.not_before >= s.at + interval '1500 ms'";
        assert_eq!((db.count(early).await, db.count(waits).await), (3, 1));
        db.finish().await;
    }
}

#[tokio::test]
async fn a_job_that_expires_before_it_begins_releases_its_permit_to_the_next() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(1)).await;
    for _ in 0..5 {
        Limited { ms: 0 }.enqueue(&db.pool).expires_in(Duration::from_hours(1)).await.unwrap();
    }
    let last = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
    // The jobs have expired but have no rows in `queue.expiry`, so only claims can detect the expiry.
    let late = "update queue.job set system = queue.with_expiry(system, clock_timestamp() - interval '1 s') where system is not null";
    db.run(late).await;
    db.run("delete from queue.expiry").await;
    db.run_while(worker(&db), async {
        db.until(last, JobState::Completed).await;
        let finished = async || db.count("select count(*) from queue.jobs where state = 'expired'").await == 5;
        eventually("the others have finished", finished).await;
        db.until_count("select coalesce(sum(n), 0)::bigint from queue.permit", 0).await;
    })
    .await;
    assert_eq!(db.count(BEGUN).await, 1);
    db.finish().await;
}
