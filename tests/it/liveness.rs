//! Tests that work continues next to endless jobs and transactions: claims next to quarantined jobs, idling during an old transaction,
//! and jobs of a claim whose reply was lost.

use std::time::{Duration, Instant};

use queue_core::{Job as _, JobId, JobState};
use queue_worker::{Config, Worker};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, effects, eventually,
    protocol::{claim, claim_of, register, silence},
    within,
};
use uuid::Uuid;

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Waits until exactly one worker is alive. Returns the worker's id.
async fn living(db: &TestDb) -> Uuid {
    let query = "select id from queue.worker where expires_at > now() limit 1";
    eventually("a worker lives", async || db.count("select count(*) from queue.worker where expires_at > now()").await == 1).await;
    sqlx::query_scalar(query).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn f73_a_claim_whose_reply_was_lost_is_released_while_its_worker_lives() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    db.run_while(db.worker(), async {
        let worker = living(&db).await;
        let busy = enqueue(&db, Act::UntilCancelled(Box::new(Act::Ok(String::new())))).await;
        db.until(busy, JobState::Running).await;
        for several in [1, 30] {
            let mut late = on.begin().await.unwrap();
            let mut jobs = Vec::new();
            for _ in 0..several {
                jobs.push(Do { act: Act::Ok(String::new()) }.enqueue(&mut late).await.unwrap().id());
            }
            let lanes: Vec<i64> = sqlx::query_scalar("select distinct lane from queue.ready").fetch_all(&mut *late).await.unwrap();
            let lease = claim_of(&mut late, worker, &lanes, &vec![0; lanes.len()], &vec![100; lanes.len()], 100).await.unwrap();
            assert_eq!(lease.ids(), jobs, "in its name, and it does not know");
            late.commit().await.unwrap();
            for job in jobs {
                within(Duration::from_secs(20), "it is completed", async || db.state(job).await == Some(JobState::Completed)).await;
            }
        }
        assert_eq!(db.count("select count(*) from queue.failure").await, 0, "no crash is counted");
        assert_eq!(db.count("select count(*) from queue.done where attempts > 1").await, 0, "no attempt is charged");
        assert_eq!((db.state(busy).await, effects(&db.pool, busy).await.unwrap()), (Some(JobState::Running), 1), "what it knows stays");
        assert_eq!(living(&db).await, worker, "the same worker");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f73_jobs_of_a_busy_worker_are_never_released() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for nth in 0..400 {
        jobs.push(enqueue(&db, if nth % 4 == 0 { Act::Sleep(nth * 10) } else { Act::Ok(String::new()) }).await);
    }
    db.run_until_idle(db.worker().lease_ttl(Duration::from_secs(1))).await;
    assert_eq!(db.count("select count(*) from effect").await, 400, "each has run once");
    db.finish().await;
}

/// Returns a worker without a grace period, because the handlers of `Long` end only when they are cancelled.
fn worker(db: &TestDb) -> Worker {
    let mut config = Config::default();
    (config.concurrency, config.grace) = (20, Duration::ZERO);
    Worker::new(db.pool.clone()).config(config).register::<Long>().register::<Do>()
}

/// Job that never ends.
#[queue_core::job]
#[derive(serde::Serialize, serde::Deserialize)]
struct Long;

impl queue_core::Handler for Long {
    async fn run(self, cx: &queue_core::Context) -> queue_core::JobResult {
        let began = "insert into effect (job, attempt, pid) values ($1, 1, 0)";
        sqlx::query(began).bind(cx.id()).execute(cx.pool()).await?;
        cx.cancelled().cancelled().await;
        Err("told to stop".into())
    }
}

/// Creates two endless jobs that are claimed by a process that has just crashed. When they are recovered, they have `crashes` crashes each.
async fn crash(on: &mut PgConnection, crashes: i16) -> Vec<JobId> {
    let ghost = register(on).await.unwrap();
    let mut held = on.begin().await.unwrap();
    let suspects = [Long.enqueue(&mut held).await.unwrap().id(), Long.enqueue(&mut held).await.unwrap().id()];
    assert_eq!(claim(&mut held, ghost, 10).await.unwrap().ids(), suspects);
    sqlx::query("update queue.lease set crashes = array[$1, $1] where worker = $2")
        .bind(crashes - 1)
        .bind(ghost)
        .execute(&mut *held)
        .await
        .unwrap();
    held.commit().await.unwrap();
    silence(on, ghost).await.unwrap();
    suspects.to_vec()
}

/// Checks that other jobs are claimed and promoted soon, both while quarantined jobs are waiting for an idle worker and while they are
/// running.
async fn others_go_on_beside_suspects(crashes: i16) {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let ordinary = Long.enqueue(&db.pool).await.unwrap().id();
    db.run_while(worker(&db), async {
        eventually("an ordinary job runs that does not end", async || effects(&db.pool, ordinary).await.unwrap() == 1).await;
        let suspects = crash(&mut on, crashes).await;
        let mut begun = None;
        // Continue until the quarantined jobs have been running for longer than other jobs would ever wait for them.
        while begun.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(12)) {
            let job = enqueue(&db, Act::Ok(String::new())).await;
            let soon = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(Duration::from_millis(20)).await.unwrap().id();
            let waits = async || db.state(soon).await != Some(JobState::Scheduled);
            within(Duration::from_secs(30), "it is promoted", waits).await;
            within(Duration::from_secs(30), "it is completed", async || db.state(job).await == Some(JobState::Completed)).await;
            if begun.is_none() && effects(&db.pool, suspects[0]).await.unwrap() == 1 {
                begun = Some(Instant::now());
            }
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f74_beside_quarantined_jobs_of_one_crash_that_run_for_minutes_claims_and_promotions_continue() {
    others_go_on_beside_suspects(1).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f74_beside_quarantined_jobs_of_two_crashes_that_run_for_minutes_claims_and_promotions_continue() {
    others_go_on_beside_suspects(2).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f72_beside_an_open_transaction_idle_workers_stay_idle_and_miss_no_job() {
    let db = TestDb::new().await;
    let (mut old, mut late) = (connect(&db).await, connect(&db).await);
    let mut config = Config::default();
    config.poll_interval = Duration::from_hours(1);
    let worker = Worker::new(db.pool.clone()).config(config).register::<Do>();
    let mut open = old.begin().await.unwrap();
    sqlx::query("select pg_current_xact_id()").execute(&mut *open).await.unwrap();
    // The producer sends no notification, because it enqueues before the worker inserts its row into `idle`.
    let mut unseen = late.begin().await.unwrap();
    let first = Do { act: Act::Ok(String::new()) }.enqueue(&mut unseen).await.unwrap().id();
    db.run_while(worker, async {
        eventually("it has announced its sleep", async || db.count("select count(*) from queue.idle").await == 1).await;
        db.until_idle(10.0).await;
        unseen.commit().await.unwrap();
        eventually("one that did not notify is found", async || db.state(first).await == Some(JobState::Completed)).await;
        let job = enqueue(&db, Act::Ok(String::new())).await;
        eventually("one that notifies is found", async || db.state(job).await == Some(JobState::Completed)).await;
        let due = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).after(Duration::from_millis(300)).await.unwrap().id();
        eventually("one that is due is found", async || db.state(due).await == Some(JobState::Completed)).await;
        let queue = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).queue("born-now").await.unwrap().id();
        eventually("one of a new lane is found", async || db.state(queue).await == Some(JobState::Completed)).await;
    })
    .await;
    open.rollback().await.unwrap();
    db.finish().await;
}
