//! Tests `wait`, which waits for the end of a job: typed outputs, jobs without an output, and lost notifications.

use std::{sync::Mutex, time::Duration};

use queue_core::{Context, Error, Handler, Job as _, JobHandle, JobId, JobResult, JobState, Queue, Store, job, wait::WaitError};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, postgres::PgPoolOptions};
use tests::{Act, Do, TestDb, WorkerProcess, eventually};
use tokio::task::JoinSet;

/// Job that adds two numbers.
#[job(send_only, output = i64)]
#[derive(Serialize, Deserialize)]
struct Add(i64, i64);

impl Handler for Add {
    async fn run(self, _: &Context) -> JobResult<i64> {
        Ok(self.0 + self.1)
    }
}

/// Job without an output.
#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Quiet;

impl Handler for Quiet {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn worker(db: &TestDb) -> Worker {
    Worker::new(db.pool.clone()).register::<Add>().register::<Quiet>().register::<Do>()
}

async fn act(db: &TestDb, act: Act) -> JobHandle<Do> {
    Do { act }.enqueue(&db.pool).await.unwrap()
}

/// Counts the connections of processes that wait for jobs.
async fn count_waiter_connections(db: &TestDb) -> i64 {
    db.count("select count(*) from pg_stat_activity where datname = current_database() and application_name = 'queue waiter'").await
}

async fn announced(db: &TestDb) -> i64 {
    db.count("select count(*) from queue.waiter").await
}

#[tokio::test]
async fn a_handle_waits_for_the_output_of_its_handler() {
    let db = TestDb::new().await;
    let queue = db.queue();
    db.run_while(worker(&db), async {
        let sum = Add(1, 2).enqueue(&db.pool).await.unwrap();
        assert_eq!((sum.wait(&queue).await.unwrap(), queue.job(sum.id()).wait::<Add>().await.unwrap()), (3, 3));
        let quiet = Quiet.enqueue(&db.pool).await.unwrap();
        quiet.wait(&queue).await.unwrap();
        JobHandle::<Quiet>::from_id(quiet.id()).in_store(Store::default()).wait(&queue).await.unwrap();
        let again = act(&db, Act::FailUntil(2)).await;
        assert_eq!(again.wait(&queue).await.unwrap(), "", "after a failed attempt");
        let status = sum.status(&db.pool).await.unwrap();
        assert_eq!((status.state, status.attempts, status.error, status.output), (JobState::Completed, 1, None, Some(3)));
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn another_process_waits_by_id_for_a_job_that_a_third_one_runs() {
    let db = TestDb::new().await;
    let id = act(&db, Act::Slowly(300, Box::new(Act::Ok("from afar".into())))).await.id().to_string();
    let handle = JobHandle::<Do>::from_id(id.parse().unwrap());
    let _process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    let queue = db.queue();
    assert_eq!(handle.wait(&queue).await.unwrap(), "from afar");
    assert_eq!(queue.job(handle.id()).wait::<Do>().await.unwrap(), "from afar");
    db.finish().await;
}

#[tokio::test]
async fn dead_and_cancelled_jobs_return_errors_with_the_last_error() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let (dead, cancelling) = (act(&db, Act::Terminal("no such door".into())).await, act(&db, Act::RetryIn(60_000)).await);
    db.run_while(worker(&db), async {
        let (there, here) = tokio::join!(dead.wait(&queue), queue.job(dead.id()).wait::<Do>());
        for error in [there.unwrap_err(), here.unwrap_err()] {
            assert!(
                matches!(&error, WaitError::Dead { error, attempts: 1, job } if error == "no such door" && *job == dead.id()),
                "{error:?}"
            );
        }
        db.until(cancelling.id(), JobState::Scheduled).await;
        let status = cancelling.status(&db.pool).await.unwrap();
        assert_eq!((status.state, status.attempts, status.error.as_deref()), (JobState::Scheduled, 1, Some("later")));
        let cancel = async { cancelling.cancel(&db.pool).await.unwrap() };
        let (there, here, _) = tokio::join!(cancelling.wait(&queue), queue.job(cancelling.id()).wait::<Do>(), cancel);
        for error in [there.unwrap_err(), here.unwrap_err()] {
            assert!(matches!(&error, WaitError::Cancelled { error: Some(error), .. } if error == "later"), "{error:?}");
        }
    })
    .await;
    let status = dead.status(&db.pool).await.unwrap();
    assert_eq!((status.state, status.error.as_deref(), status.output), (JobState::Dead, Some("no such door"), None));
    db.finish().await;
}

#[tokio::test]
async fn a_job_whose_process_ends_three_times_is_reported_as_dead() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let poison = act(&db, Act::AbortImmediately).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { poison.wait(&queue).await }
    });
    for _ in 0..3 {
        let mut process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
        eventually("it ends its process", async || process.has_ended()).await;
        db.expire_worker(&process).await;
        db.run_while(Worker::new(db.pool.clone()).register::<Quiet>(), async {
            eventually("it is recovered", async || db.count("select count(*) from queue.lease").await == 0).await;
        })
        .await;
    }
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(&error, WaitError::Dead { attempts: 3, error, .. } if error.contains("the process ended")), "{error:?}");
    db.finish().await;
}

#[tokio::test]
async fn an_impossible_wait_is_refused_and_never_hangs() {
    /// Job that leaves no record after its completion.
    #[job(send_only, retain = "none")]
    #[derive(Serialize, Deserialize)]
    struct Gone;
    /// Job type whose output type differs from that of `Do`.
    #[job(send_only, output = Vec<String>)]
    #[derive(Serialize, Deserialize)]
    struct Other;

    let db = TestDb::new().await;
    let queue = db.queue();
    let forgotten = Gone.enqueue(&db.pool).await.unwrap();
    assert!(matches!(forgotten.wait(&queue).await.unwrap_err(), WaitError::NotKept { job_type: "gone" }));
    assert_eq!(forgotten.status(&db.pool).await.unwrap().state, JobState::Ready);
    let unknown = JobHandle::<Add>::from_id(JobId(7));
    assert!(matches!(unknown.wait(&queue).await.unwrap_err(), WaitError::NotFound { .. }));
    assert!(matches!(queue.job(JobId(7)).progress().await.unwrap_err(), Error::NotFound { .. }));
    assert!(matches!(unknown.status(&db.pool).await.unwrap_err(), WaitError::NotFound { .. }));
    assert!(matches!(unknown.progress(&db.pool).await.unwrap_err(), Error::NotFound { .. }));
    assert!(matches!(unknown.watch(&queue).next().await, Some(Err(WaitError::NotFound { .. }))));

    let secret = act(&db, Act::Ok("secret".into())).await;
    let patience = Duration::from_millis(50);
    let waited = secret.wait(&queue).timeout(patience).await;
    assert!(matches!(waited.unwrap_err(), WaitError::Timeout { timeout, .. } if timeout == patience));
    db.run_while(worker(&db), db.until(secret.id(), JobState::Completed)).await;
    let wrong = JobHandle::<Other>::from_id(secret.id());
    for error in [wrong.wait(&queue).await.unwrap_err(), wrong.status(&db.pool).await.unwrap_err()] {
        assert!(matches!(error, WaitError::Output { .. }) && !error.to_string().contains("secret"), "{error:?}");
    }
    let nowhere = secret.in_store(Store::new("nowhere").unwrap());
    let elsewhere = nowhere.wait(&db.queue().store(nowhere.store())).await.unwrap_err();
    assert!(elsewhere.to_string().contains("holds no job queue"), "{elsewhere}");
    for elsewhere in [nowhere.wait(&queue).await.unwrap_err(), nowhere.watch(&queue).next().await.unwrap().unwrap_err()] {
        assert!(matches!(elsewhere, WaitError::OtherStore { store: "nowhere", handle: "queue", .. }), "{elsewhere}");
    }
    db.finish().await;
}

#[tokio::test]
async fn waits_outlive_the_runtime_of_the_first_wait() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let job = act(&db, Act::Ok("later".into())).await;
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // The first wait starts the polling task on the other runtime. All clones of `queue` share this task.
    let first = other.spawn({
        let queue = queue.clone();
        async move { job.wait(&queue).await }
    });
    eventually("it waits", async || announced(&db).await == 1).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.job(job.id()).wait::<Do>().await }
    });
    // The test's runtime has one thread, so this yield lets the second wait begin.
    tokio::task::yield_now().await;
    other.shutdown_background();
    assert!(first.await.unwrap_err().is_cancelled());
    db.run_while(worker(&db), async { assert_eq!(waiting.await.unwrap().unwrap(), "later") }).await;
    assert_eq!(job.wait(&queue).await.unwrap(), "later");
    db.finish().await;
}

#[test]
fn a_wait_on_a_runtime_that_is_shutting_down_fails() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (other, ended) = (runtime(), runtime());
    let handle = ended.handle().clone();
    let queue = Queue::new(&other.block_on(async { PgPoolOptions::new().connect_lazy("postgres://app@127.0.0.1:9/x").unwrap() }));
    ended.shutdown_background();
    let failed = handle.block_on(queue.job(JobId(7)).wait::<Add>().into_future()).unwrap_err();
    assert!(matches!(&failed, WaitError::Store(error) if error.to_string().contains("shutting down")), "{failed:?}");
}

#[tokio::test]
async fn a_wait_never_returns_an_outcome_from_before_its_start() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let job = act(&db, Act::Ok("again".into())).await;
    // Another wait keeps the waiter polling, so that polls are in flight when the job is cancelled and requeued.
    let _other = tokio::spawn({
        let (queue, other) = (queue.clone(), Quiet.enqueue(&db.pool).await.unwrap());
        async move { other.wait(&queue).await }
    });
    for _ in 0..100 {
        let unfinished = job.wait(&queue).timeout(Duration::from_millis(20));
        job.cancel(&db.pool).await.unwrap();
        let cancelled = tokio::spawn({
            let queue = queue.clone();
            async move { job.wait(&queue).await }
        });
        tokio::task::yield_now().await;
        job.requeue(&db.pool).await.unwrap();
        let after = unfinished.await;
        assert!(matches!(after, Err(WaitError::Timeout { .. })), "{after:?}");
        cancelled.abort();
    }
    db.finish().await;
}

#[tokio::test]
async fn a_wait_ends_with_an_error_once_the_pool_is_closed() {
    let db = TestDb::new().await;
    let pool = PgPoolOptions::new().connect(&db.url).await.unwrap();
    let queue = Queue::new(&pool);
    let job = act(&db, Act::Ok(String::new())).await;
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { job.wait(&queue).await }
    });
    eventually("it waits", async || announced(&db).await == 1).await;
    pool.close().await;
    assert!(matches!(waiting.await.unwrap(), Err(WaitError::Store(_))));
    assert!(matches!(job.wait(&queue).await, Err(WaitError::Store(_))));
    drop(queue);
    db.finish().await;
}

#[tokio::test]
async fn two_thousand_handles_wait_on_one_connection() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let jobs = (0..2000).map(|n| Add(n, 1));
    let handles = Add::enqueue_all(jobs, &db.pool).returning_ids().await.unwrap();
    let mut waits = JoinSet::new();
    for (n, handle) in (0..).zip(handles) {
        let queue = queue.clone();
        waits.spawn(async move { (n, handle.wait(&queue).await) });
    }
    eventually("it is announced", async || announced(&db).await == 1).await;
    let most = Mutex::new(count_waiter_connections(&db).await);
    db.run_while(worker(&db), async {
        while let Some(joined) = waits.join_next().await {
            let (n, sum) = joined.unwrap();
            assert_eq!(sum.unwrap(), n + 1);
            if n % 500 == 0 {
                let now = count_waiter_connections(&db).await;
                let mut most = most.lock().unwrap();
                *most = now.max(*most);
            }
        }
    })
    .await;
    assert_eq!(most.into_inner().unwrap(), 1);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_notification_that_is_lost_costs_no_result() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let slow = || async { act(&db, Act::Sleep(400)).await };
    db.run_while(worker(&db), async {
        // The listener's connection is cut repeatedly while the job is running.
        let job = slow().await;
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { job.wait(&queue).await }
        });
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and application_name = 'queue waiter'";
        let mut cuts = 0;
        eventually("it was cut, and the job has finished", async || {
            if cuts < 3 {
                cuts += db.count(cut).await;
            }
            cuts >= 3 && db.state(job.id()).await == Some(JobState::Completed)
        })
        .await;
        waiting.await.unwrap().unwrap();

        // The waiter's registration is deleted, so no notification is requested for this job.
        let job = slow().await;
        let (result, ()) = tokio::join!(job.wait(&queue), async {
            eventually("it has seen the job run", async || announced(&db).await == 1).await;
            db.pool.execute("delete from queue.waiter").await.unwrap();
        });
        result.unwrap();
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn workers_and_operators_notify_only_while_a_waiter_exists() {
    let db = TestDb::new().await;
    let mut listener = db.listen("over").await;
    let scheduled = Quiet.enqueue(&db.pool).after(Duration::from_mins(10)).await.unwrap();
    db.run_while(worker(&db), async {
        db.until(Quiet.enqueue(&db.pool).await.unwrap().id(), JobState::Completed).await;
        // Notifications sent earlier arrive with the reply to the following `select 1`.
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::query("select 1").execute(&mut listener).await.unwrap();
        assert!(listener.next_buffered().is_none(), "no process waits for a job");

        db.pool.execute("insert into queue.waiter values (gen_random_uuid(), now() + interval '1 hour')").await.unwrap();
        Quiet.enqueue(&db.pool).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), listener.recv()).await.expect("a worker notifies").unwrap();
    })
    .await;
    while listener.next_buffered().is_some() {}
    scheduled.cancel(&db.pool).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), listener.recv()).await.expect("an operator notifies").unwrap();
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_wait_that_is_dropped_leaves_nothing_behind() {
    let db = TestDb::new().await;
    let queue = db.queue();
    let job = act(&db, Act::Ok(String::new())).await;
    for _ in 0..100 {
        assert!(job.wait(&queue).timeout(Duration::from_millis(1)).await.is_err());
    }
    eventually("the row that requests notifications is gone", async || announced(&db).await == 0).await;
    assert_eq!(db.count("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in %'").await, 0);
    let waiting = tokio::spawn(async move { job.wait(&queue).await });
    eventually("it waits again", async || announced(&db).await == 1).await;
    waiting.abort();
    eventually("with its last clone the waiter is gone", async || announced(&db).await == 0 && count_waiter_connections(&db).await == 0)
        .await;
    db.finish().await;
}

/// Job that returns 1.6 MB of poorly compressible text.
#[job(send_only, output = String)]
#[derive(Serialize, Deserialize)]
struct Large;

impl Handler for Large {
    async fn run(self, cx: &Context) -> JobResult<String> {
        let random = "select string_agg(encode(sha256(random()::text::bytea), 'hex'), '') from generate_series(1, 25000)";
        Ok(sqlx::query_scalar(random).fetch_one(cx.pool()).await?)
    }
}

#[tokio::test]
async fn outputs_too_large_for_one_answer_come_in_several() {
    let db = TestDb::new().await;
    let (queue, mut waits) = (db.queue(), JoinSet::new());
    for _ in 0..8 {
        let (job, queue) = (Large.enqueue(&db.pool).await.unwrap(), queue.clone());
        waits.spawn(async move { job.wait(&queue).await });
    }
    db.run_until_idle(worker(&db).register::<Large>()).await;
    while let Some(joined) = waits.join_next().await {
        assert_eq!(joined.unwrap().unwrap().len(), 1_600_000);
    }
    db.finish().await;
}
