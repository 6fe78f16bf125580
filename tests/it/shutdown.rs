//! Tests the shutdown of a worker. Jobs finish in time or are released without charging an attempt, and nothing delays the exit.

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, batch, job};
use queue_worker::Worker;
use tests::{Act, Do, TestDb, WorkerProcess, effects, eventually, within};
use tokio::sync::oneshot;

/// Timeout for a shutdown on a machine that freezes occasionally. A shutdown that hangs takes longer than this timeout.
const PATIENCE: Duration = Duration::from_secs(20);

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

fn ok() -> Act {
    Act::Ok("done".to_owned())
}

/// Returns an `Act` that performs `act` in the first run and succeeds in any later run, whether or not the first run was charged.
fn once(act: Act) -> Act {
    Act::FirstThen(Box::new(act), Box::new(ok()))
}

async fn begun(db: &TestDb, jobs: i64) {
    eventually(&format!("{jobs} handlers have begun"), async || db.count("select count(*) from effect").await >= jobs).await;
}

/// Checks that the job is ready, and that no attempt, crash or failure was charged.
async fn untouched(db: &TestDb, id: JobId) {
    assert_eq!(db.state(id).await, Some(JobState::Ready));
    let charged: (i16, i16, i64) = sqlx::query_as(
        "select attempts, crashes, (select count(*) from queue.failure f where f.id = j.id) from queue.jobs j where id = $1",
    )
    .bind(id)
    .fetch_one(&db.pool)
    .await
    .unwrap();
    assert_eq!(charged, (0, 0, 0), "attempts, crashes and failures of {id}");
}

/// Checks that the store has no worker, no idle row and no lease.
async fn left_no_trace(db: &TestDb) {
    for table in ["worker", "idle", "lease"] {
        assert_eq!(db.count(&format!("select count(*) from queue.{table}")).await, 0, "rows in {table}");
    }
}

#[tokio::test]
async fn a_handler_that_ends_within_the_grace_period_counts() {
    let db = TestDb::new().await;
    let slow = enqueue(&db, Act::Sleep(500)).await;
    let failing = Do { act: Act::Slowly(300, Box::new(Act::Fail("in time".into()))) }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    db.run_while(db.worker().grace(Duration::from_secs(30)), begun(&db, 2)).await;
    assert_eq!((db.state(slow).await, db.state(failing).await), (Some(JobState::Completed), Some(JobState::Dead)));
    assert_eq!(db.count("select count(*) from queue.failure where error = 'in time'").await, 1);
    left_no_trace(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_worker_with_nothing_to_finish_does_not_wait_for_its_grace_period() {
    let db = TestDb::new().await;
    enqueue(&db, Act::Ok(String::new())).await;
    db.run_until_idle(db.worker().grace(Duration::from_hours(1))).await;
    left_no_trace(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_does_not_end_in_time_is_released_uncharged_and_runs_elsewhere() {
    let db = TestDb::new().await;
    let acts =
        [Act::Hang, Act::UntilCancelled(Box::new(Act::Fail("late".into()))), Act::UntilCancelled(Box::new(Act::Terminal("late".into())))];
    let mut jobs = Vec::new();
    for act in acts {
        jobs.push(enqueue(&db, once(act)).await);
    }
    let polite = enqueue(&db, Act::UntilCancelled(Box::new(ok()))).await;
    db.run_while(db.worker().grace(Duration::from_millis(100)), begun(&db, 4)).await;
    for id in &jobs {
        untouched(&db, *id).await;
    }
    assert_eq!(db.state(polite).await, Some(JobState::Completed), "cancelled, it ended successfully");
    left_no_trace(&db).await;

    db.run_until_idle(db.worker()).await;
    for id in jobs {
        assert_eq!((db.state(id).await, effects(&db.pool, id).await.unwrap()), (Some(JobState::Completed), 2));
    }
    assert_eq!(
        db.count("select count(*) from queue.failure").await + db.count("select count(*) from queue.done where attempts <> 1").await,
        0
    );
    db.finish().await;
}

/// Job that saves a checkpoint and fails when a shutdown begins. It completes on the next attempt.
#[job]
#[derive(serde::Serialize, serde::Deserialize)]
struct Leaves;

impl Handler for Leaves {
    async fn run(self, cx: &Context) -> JobResult {
        tests::record(cx).await?;
        if cx.last_checkpoint::<u32>().await? == Some(7) {
            return Ok(());
        }
        cx.shutting_down().cancelled().await;
        assert_eq!(cx.cancelled().reason(), None, "the grace period has begun");
        cx.checkpoint(&7).await?;
        Err("shutting down".into())
    }
}

#[job(transactional)]
#[derive(serde::Serialize, serde::Deserialize)]
struct LeavesTransaction;

impl Handler for LeavesTransaction {
    async fn run(self, cx: &Context) -> JobResult {
        tests::record(cx).await?;
        if tests::effects(cx.pool(), cx.id()).await? == 1 {
            cx.shutting_down().cancelled().await;
            return Err("shutting down".into());
        }
        Ok(())
    }
}

/// Batch job that fails when a shutdown begins. One job of the batch fails by itself, and the other job fails with the batch.
#[job(batch = 2, batch_wait = "1m")]
#[derive(serde::Serialize, serde::Deserialize)]
struct LeavesBatch;

impl batch::BatchHandler for LeavesBatch {
    async fn run(batch: &mut batch::JobBatch<Self>, cx: &batch::BatchContext) -> JobResult {
        for job in batch.iter() {
            tests::record(job).await?;
        }
        if tests::effects(cx.pool(), batch[0].id()).await? == 1 {
            cx.shutting_down().cancelled().await;
            batch[0].fail("shutting down");
            return Err("shutting down".into());
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_returns_at_the_start_of_a_shutdown_is_released_immediately_and_uncharged() {
    let db = TestDb::new().await;
    let jobs = [
        ("single", Leaves.enqueue(&db.pool).await.unwrap().id()),
        ("transactional", LeavesTransaction.enqueue(&db.pool).await.unwrap().id()),
        ("first of a batch", LeavesBatch.enqueue(&db.pool).await.unwrap().id()),
        ("rest of a batch", LeavesBatch.enqueue(&db.pool).await.unwrap().id()),
    ];
    let worker = || db.worker().register::<Leaves>().register::<LeavesTransaction>().register_batch::<LeavesBatch>();
    db.run_while(worker().grace(Duration::from_hours(1)), begun(&db, 4)).await;
    for (of, id) in jobs {
        println!("{of}");
        untouched(&db, id).await;
    }
    left_no_trace(&db).await;

    db.run_until_idle(worker()).await;
    for (of, id) in jobs {
        assert_eq!((db.state(id).await, effects(&db.pool, id).await.unwrap()), (Some(JobState::Completed), 2), "{of}");
    }
    db.finish().await;
}

/// Job that ends immediately or runs forever. It has no timeout, so a freeze of the machine cannot end it.
#[job]
#[derive(serde::Serialize, serde::Deserialize)]
struct AtOnceOrNever {
    ends: bool,
}

impl Handler for AtOnceOrNever {
    async fn run(self, cx: &Context) -> JobResult {
        tests::record(cx).await?;
        if self.ends { Ok(()) } else { std::future::pending().await }
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn jobs_that_were_claimed_in_advance_are_released() {
    let db = TestDb::new().await;
    // The fast jobs come first. They make the worker expect short jobs, so it claims many of the slow jobs in advance.
    let fast = "select count(queue.enqueue('at_once_or_never', '{\"ends\": true}')) from generate_series(1, 3000)";
    let slow = "select count(queue.enqueue('at_once_or_never', '{\"ends\": false}')) from generate_series(1, 3000)";
    assert_eq!(db.count(fast).await + db.count(slow).await, 6000);
    let worker = db.worker().register::<AtOnceOrNever>().concurrency(4).grace(Duration::ZERO);
    let held = db.run_while(worker, async {
        within(Duration::from_mins(3), "the slow ones have begun", async || db.count("select count(*) from effect").await >= 3004).await;
        db.count("select sum(cardinality(ids)) from queue.lease").await
    });
    let held = held.await;
    assert!(held > 4, "{held} jobs were held, none in advance");
    let charged = "select coalesce(string_agg(to_jsonb(j)::text, ' '), '') from (select id, state, attempts, crashes, error from queue.jobs
                   where state <> 'completed' and (state <> 'ready' or attempts <> 0 or crashes <> 0)) j";
    assert_eq!(sqlx::query_scalar::<_, String>(charged).fetch_one(&db.pool).await.unwrap(), "", "of {held} that were held");
    assert_eq!(db.count("select count(*) from queue.ready").await, 3000);
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    left_no_trace(&db).await;
    db.finish().await;
}

/// Runs a worker on a runtime with two threads until handlers block both threads, then shuts the worker down. The handlers block for longer
/// than a test may take.
fn end_of_blocked(worker: Worker, db: &TestDb, blocking: i64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let url = db.url.clone();
    runtime.block_on(async move {
        let (stop, stopped) = oneshot::channel::<()>();
        // The checks run on another thread, because all threads of the runtime may be blocked.
        let (begun, has_begun) = oneshot::channel();
        std::thread::spawn(move || {
            let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            own.block_on(async {
                let pool = sqlx::PgPool::connect(&url).await.unwrap();
                let count = async || sqlx::query_scalar::<_, i64>("select count(*) from effect").fetch_one(&pool).await.unwrap();
                eventually("a handler blocks", async || count().await > 0).await;
                // The first blocking handler may prevent the second handler from starting.
                let _ = tokio::time::timeout(Duration::from_secs(1), eventually("more do", async || count().await >= blocking)).await;
            });
            let _ = begun.send(());
        });
        // The worker is not spawned, because a blocked thread may keep some spawned tasks from running.
        let running = worker.run(async move {
            let _ = stopped.await;
        });
        let ending = async {
            has_begun.await.unwrap();
            let _ = stop.send(());
        };
        let (ended, ()) = tokio::join!(running, ending);
        ended.unwrap();
    });
    runtime.shutdown_background();
}

#[tokio::test]
async fn f58_a_handler_that_never_awaits_does_not_delay_the_exit() {
    let db = TestDb::new().await;
    let job = enqueue(&db, once(Act::Block(600_000))).await;
    let pool = sqlx::PgPool::connect_lazy(&db.url).unwrap();
    let worker = Worker::new(pool).register::<Do>().concurrency(1).grace(Duration::from_millis(500));
    std::thread::scope(|scope| scope.spawn(|| end_of_blocked(worker, &db, 1)).join()).unwrap();
    untouched(&db, job).await;
    left_no_trace(&db).await;
    db.run_while(db.worker(), db.until(job, JobState::Completed)).await;
    db.finish().await;
}

#[tokio::test]
async fn f51_handlers_that_block_every_thread_do_not_delay_the_exit() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, once(Act::Block(600_000))).await, enqueue(&db, once(Act::Block(600_000))).await];
    let pool = sqlx::PgPool::connect_lazy(&db.url).unwrap();
    let worker = Worker::new(pool).register::<Do>().concurrency(5).grace(Duration::from_millis(500));
    std::thread::scope(|scope| scope.spawn(|| end_of_blocked(worker, &db, 2)).join()).unwrap();
    for job in jobs {
        untouched(&db, job).await;
    }
    left_no_trace(&db).await;
    db.finish().await;
}

fn start(db: &TestDb, grace_ms: &str) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("GRACE_MS", grace_ms), ("CONCURRENCY", "20")])
}

#[tokio::test]
async fn f58_a_process_ends_after_its_grace_period_and_another_takes_over_immediately() {
    let db = TestDb::new().await;
    let mut unfinished = Vec::new();
    for act in [Act::Hang, Act::Sleep(4000)] {
        unfinished.push(enqueue(&db, once(act)).await);
    }
    let finished = enqueue(&db, Act::Sleep(700)).await;
    let mut process = start(&db, "1000");
    begun(&db, 3).await;
    let since = Instant::now();
    process.signal("TERM");
    within(PATIENCE, "the process has ended", async || process.has_ended()).await;
    assert!(since.elapsed() >= Duration::from_millis(500), "it gave its handlers some time");
    assert_eq!(process.wait(), Some(0));
    assert_eq!(db.state(finished).await, Some(JobState::Completed));
    for id in &unfinished {
        untouched(&db, *id).await;
    }
    left_no_trace(&db).await;

    let _second = start(&db, "1000");
    for id in unfinished {
        db.until(id, JobState::Completed).await;
    }
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn f58_a_process_whose_handlers_never_await_ends_after_its_grace_period() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::Block(60_000)).await, enqueue(&db, Act::Block(60_000)).await];
    let mut process = start(&db, "500");
    begun(&db, 1).await;
    process.signal("TERM");
    within(PATIENCE, "the process has ended", async || process.has_ended()).await;
    assert_eq!(process.wait(), Some(0));
    for id in jobs {
        untouched(&db, id).await;
    }
    left_no_trace(&db).await;
    db.finish().await;
}

#[tokio::test]
async fn f58_a_second_signal_ends_the_process_immediately() {
    let db = TestDb::new().await;
    for act in [Act::Block(60_000), Act::Block(60_000), Act::Sleep(4000)] {
        enqueue(&db, once(act)).await;
    }
    let mut process = start(&db, "60000");
    begun(&db, 1).await;
    process.signal("TERM");
    // The second signal is sent a moment later, because no other process can see whether the first signal was handled.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!process.has_ended(), "it waits for its handlers");
    // Signals that arrive before the process handles them count as one, so the signal is sent until the process ends.
    within(PATIENCE, "the process has ended", async || {
        process.signal("TERM");
        process.has_ended()
    })
    .await;
    assert_eq!(process.wait(), Some(130));
    db.check_invariant().await;
    assert_eq!(db.count("select count(*) from queue.jobs where state in ('running', 'ready')").await, 3, "for others to recover");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f58_many_workers_stopped_at_random_moments_lose_and_repeat_nothing() {
    let db = TestDb::new().await;
    let jobs = "select count(queue.enqueue('do', '{\"act\": {\"Sleep\": 2}}')) from generate_series(1, 3000)";
    assert_eq!(db.count(jobs).await, 3000);
    let mut ends = 0;
    while db.count("select count(*) from queue.done").await < 3000 {
        let before = db.count("select count(*) from queue.done").await;
        db.run_while(db.worker().concurrency(20).grace(Duration::from_secs(10)), async {
            within(Duration::from_secs(30), "some are done", async || {
                let done = db.count("select count(*) from queue.done").await;
                done > before + 300 || done == 3000
            })
            .await;
        })
        .await;
        left_no_trace(&db).await;
        db.check_invariant().await;
        ends += 1;
    }
    assert!(ends >= 3, "only {ends} workers were ended");
    assert_eq!(db.count("select count(*) from effect").await, 3000, "each ran once");
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn a_worker_that_is_dropped_is_gone_and_others_have_its_jobs() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, once(Act::Hang)).await, enqueue(&db, once(Act::UntilGo(Box::new(Act::Fail("too late".into()))))).await];
    let dropped = tokio::spawn(db.worker().run(std::future::pending()));
    begun(&db, 2).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    eventually("its heartbeat has ended", async || db.count("select count(*) from queue.worker").await == 0).await;
    // A claim that was in flight when the worker was dropped continues on the server. Wait until its connection has ended.
    let on_its_way = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'queue-worker%'";
    eventually("its connections have ended", async || db.count(on_its_way).await == 0).await;
    let later = enqueue(&db, Act::Ok(String::new())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(db.state(later).await, Some(JobState::Ready), "it claims no more");
    sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    db.run_while(db.worker(), async {
        for id in jobs.into_iter().chain([later]) {
            db.until(id, JobState::Completed).await;
        }
    })
    .await;
    assert_eq!(effects(&db.pool, jobs[1]).await.unwrap(), 2, "its handlers ended with it");
    assert_eq!(db.count("select count(*) from queue.failure where error = 'too late'").await, 0, "nor is anything settled for them");
    left_no_trace(&db).await;
    db.finish().await;
}
