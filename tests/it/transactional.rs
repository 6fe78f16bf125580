//! Tests transactional jobs. The handler's writes and the job's completion are committed together or not at all, however the attempt
//! ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use queue_core::{Context, Failure, Handler, Job as _, JobHandle, JobId, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, postgres::PgPoolOptions};
use tests::{Act, Do, TestDb, Within, WorkerProcess, eventually, within};

fn start(db: &TestDb) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[])
}

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<Within>()
}

async fn enqueue(db: &TestDb, how: &str) -> JobId {
    Within { how: how.to_owned() }.enqueue(&db.pool).await.unwrap().id()
}

/// Counts the rows that handlers wrote in their transactions.
async fn written(db: &TestDb) -> i64 {
    db.count("select count(*) from effect").await
}

/// Returns the numbers of charged attempts, crashes and stored failures of a job.
async fn charged(db: &TestDb, id: JobId) -> (i16, i16, i64) {
    sqlx::query_as("select attempts, crashes, (select count(*) from queue.failure f where f.id = j.id) from queue.jobs j where id = $1")
        .bind(id)
        .fetch_one(&db.pool)
        .await
        .unwrap()
}

/// Waits until a handler has written in its transaction. The uncommitted row is not visible, so this function checks the session's
/// activity.
async fn in_the_middle(db: &TestDb) {
    let query = "select count(*) from pg_stat_activity
      where datname = current_database() and state = 'idle in transaction' and query like '%effect%'";
    eventually("a handler has written", async || db.count(query).await > 0).await;
}

#[tokio::test]
async fn a_handlers_writes_are_committed_with_its_completion() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold").await;
    db.run_while(worker(&db), async {
        in_the_middle(&db).await;
        assert_eq!((db.state(job).await, written(&db).await), (Some(JobState::Running), 0));
        sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
        eventually("both are there together", async || {
            let seen: (String, i64) =
                sqlx::query_as("select state, (select count(*) from effect) from queue.jobs").fetch_one(&db.pool).await.unwrap();
            assert_eq!(seen.1 == 1, seen.0 == "completed", "{seen:?}");
            seen.1 == 1
        })
        .await;
    })
    .await;
    assert_eq!(charged(&db, job).await, (1, 0, 0));
    let output: Option<String> = sqlx::query_scalar("select output::text from queue.jobs").fetch_one(&db.pool).await.unwrap();
    assert_eq!(output.as_deref(), Some("\"hold\""));
    db.finish().await;
}

#[tokio::test]
async fn a_failure_of_any_kind_is_charged_and_rolls_its_writes_back() {
    let db = TestDb::new().await;
    let kinds = ["fail", "panic", "hang", "sleep in sql", "bad sql", "swallow", "deferred", "rollback by hand", "fail in nested"];
    let mut jobs = Vec::new();
    for how in kinds {
        jobs.push(enqueue(&db, how).await);
    }
    let terminal = enqueue(&db, "terminal").await;
    let snoozed = enqueue(&db, "snooze").await;
    db.run_while(worker(&db), async {
        for (how, job) in kinds.into_iter().zip(&jobs) {
            within(Duration::from_secs(20), how, async || db.state(*job).await == Some(JobState::Dead)).await;
            assert_eq!(charged(&db, *job).await, (2, 0, 2), "{how}");
        }
        db.until(terminal, JobState::Dead).await;
        db.until(snoozed, JobState::Scheduled).await;
    })
    .await;
    assert_eq!((charged(&db, terminal).await, charged(&db, snoozed).await), ((1, 0, 1), (0, 0, 0)));
    assert_eq!(written(&db).await, 0, "nothing is left of what they wrote");
    db.finish().await;
}

#[tokio::test]
async fn a_failure_at_first_does_not_keep_a_later_attempt_from_completing() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "fail first").await;
    db.run_until_idle(worker(&db)).await;
    assert_eq!((db.state(job).await, written(&db).await, charged(&db, job).await), (Some(JobState::Completed), 1, (2, 0, 1)));
    db.finish().await;
}

#[tokio::test]
async fn a_killed_process_loses_its_writes_is_charged_and_another_runs_the_job() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold").await;
    let process = start(&db);
    in_the_middle(&db).await;
    db.kill(process).await;
    assert_eq!((db.state(job).await, written(&db).await), (Some(JobState::Running), 0), "until its worker is known to be silent");
    sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    db.run_while(worker(&db), db.until(job, JobState::Completed)).await;
    assert_eq!((charged(&db, job).await, written(&db).await), ((2, 0, 1), 1), "history has the failure, not the count of crashes");
    db.finish().await;
}

#[tokio::test]
async fn a_cut_connection_is_a_failure_that_leaves_nothing() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "hold").await;
    db.run_while(worker(&db), async {
        in_the_middle(&db).await;
        // The session also polls for the table `go`, so it is not always idle. The test retries until it finds the session idle.
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
          where datname = current_database() and state = 'idle in transaction' and query like '%effect%'";
        eventually("it is cut", async || db.count(cut).await > 0).await;
        eventually("it has failed once", async || charged(&db, job).await.2 == 1).await;
        assert_eq!(written(&db).await, 0);
        in_the_middle(&db).await;
        sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
        db.until(job, JobState::Completed).await;
    })
    .await;
    assert_eq!((charged(&db, job).await, written(&db).await), ((2, 0, 1), 1));
    db.finish().await;
}

/// The worker's pool has one connection. Jobs wait for the connection without failing.
#[tokio::test]
async fn jobs_that_wait_for_a_connection_of_the_pool_are_not_charged() {
    let db = TestDb::new().await;
    let options = (*db.pool.connect_options()).clone();
    let narrow = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(50)).connect_lazy_with(options);
    let first = enqueue(&db, "hold").await;
    let others = [enqueue(&db, "ok").await, enqueue(&db, "ok").await];
    db.run_while(Worker::new(narrow).register::<Within>().register::<Do>(), async {
        in_the_middle(&db).await;
        eventually("all have begun", async || db.count("select count(*) from queue.jobs where state = 'running'").await == 3).await;
        sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
        for job in [first, others[0], others[1]] {
            db.until(job, JobState::Completed).await;
            assert_eq!(charged(&db, job).await, (1, 0, 0));
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn transactional_jobs_take_turns_and_are_counted_under_limits() {
    let db = TestDb::new().await;
    db.pool.execute("create table ran (tenant text, beside int)").await.unwrap();
    for tenant in ["a", "a", "a", "b"] {
        Lined { tenant: tenant.to_owned() }.enqueue(&db.pool).await.unwrap();
    }
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Lined>().state(Arc::<AtomicUsize>::default())).await;
    let ran: Vec<(String, i32)> = sqlx::query_as("select tenant, beside from ran order by ctid").fetch_all(&db.pool).await.unwrap();
    let order: String = ran.iter().map(|(tenant, _)| tenant.as_str()).collect();
    assert!(["abaa", "baaa"].contains(&&*order), "in turn, from any of them on: {order}");
    assert!(ran.iter().all(|(_, beside)| *beside == 0), "one at a time: {ran:?}");
    db.finish().await;
}

/// Transactional job with a fair key per tenant, and a limit of one running job.
#[job(send_only, transactional, fair = self.tenant, limit(concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct Lined {
    tenant: String,
}

impl Handler for Lined {
    async fn run(self, cx: &Context) -> JobResult {
        let beside = cx.state::<Arc<AtomicUsize>>().fetch_add(1, SeqCst);
        let mut tx = cx.transaction().await;
        sqlx::query("insert into ran values ($1, $2)").bind(&self.tenant).bind(i32::try_from(beside)?).execute(&mut *tx).await?;
        cx.state::<Arc<AtomicUsize>>().fetch_sub(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn a_timeout_that_a_handler_sets_in_its_transaction_does_not_interrupt_its_verdict() {
    let db = TestDb::new().await;
    let job = enqueue(&db, "impatient").await;
    let mut operator = db.pool.begin().await.unwrap();
    operator.execute("lock table queue.done in share mode").await.unwrap();
    db.run_while(worker(&db), async {
        let waits = "select count(*) from pg_locks l where l.relation = 'queue.done'::regclass and not l.granted
          and clock_timestamp() - l.waitstart > interval '200 ms'";
        eventually("the verdict waits for longer than the handler would have", async || db.count(waits).await > 0).await;
        operator.commit().await.unwrap();
        eventually("it is completed", async || db.state(job).await == Some(JobState::Completed)).await;
    })
    .await;
    assert_eq!((charged(&db, job).await, written(&db).await), ((1, 0, 0), 1));
    db.finish().await;
}

#[tokio::test]
async fn children_enqueued_in_the_transaction_exist_only_on_success() {
    let db = TestDb::new().await;
    let (lost, kept) = (enqueue(&db, "fail with child").await, enqueue(&db, "child").await);
    db.run_until_idle(worker(&db)).await;
    assert_eq!((db.state(lost).await, db.state(kept).await), (Some(JobState::Dead), Some(JobState::Completed)));
    assert_eq!(db.count("select count(*) from queue.jobs where job_type = 'do' and state = 'completed'").await, 1);
    db.finish().await;
}

/// Transactional job that counts the runs of its type.
#[job(send_only, transactional, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Once {
    n: i32,
}

impl Handler for Once {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        sqlx::query("insert into ran (n) values ($1)").bind(self.n).execute(&mut *tx).await?;
        cx.state::<Arc<AtomicUsize>>().fetch_add(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn no_job_runs_twice_with_several_workers_and_ordinary_jobs_run_beside_them() {
    let db = TestDb::new().await;
    db.pool.execute("create table ran (n int primary key)").await.unwrap();
    Once::enqueue_all((0..400).map(|n| Once { n }), &db.pool).await.unwrap();
    let ordinary: Vec<JobId> = Do::enqueue_all((0..200).map(|_| Do { act: Act::Ok(String::new()) }), &db.pool)
        .returning_ids()
        .await
        .unwrap()
        .iter()
        .map(JobHandle::id)
        .collect();
    let runs: Arc<AtomicUsize> = Arc::default();
    let one = || worker(&db).register::<Once>().state(Arc::clone(&runs));
    db.run_while(
        one(),
        db.run_while(one(), async {
            within(Duration::from_secs(30), "all have finished", async || db.count("select count(*) from queue.ready").await == 0).await;
            for job in ordinary {
                db.until(job, JobState::Completed).await;
            }
        }),
    )
    .await;
    assert_eq!((db.count("select count(*) from ran").await, runs.load(SeqCst)), (400, 400), "each once, by any worker");
    assert_eq!(
        db.count("select count(*) from queue.done where attempts = 1").await,
        600 - db.count("select coalesce(sum(cardinality(ids)), 0)::bigint from queue.done_many").await
    );
    db.finish().await;
}

#[tokio::test]
async fn a_shutdown_lets_a_handler_finish_and_rolls_back_one_that_takes_too_long() {
    let db = TestDb::new().await;
    let long = enqueue(&db, "hold").await;
    db.run_while(worker(&db).grace(Duration::from_millis(100)), in_the_middle(&db)).await;
    assert_eq!((db.state(long).await, charged(&db, long).await, written(&db).await), (Some(JobState::Ready), (0, 0, 0), 0));
    let stopping = async {
        in_the_middle(&db).await;
        let pool = db.pool.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            sqlx::query("create table go ()").execute(&pool).await.unwrap();
        });
    };
    db.run_while(worker(&db).grace(Duration::from_secs(20)), stopping).await;
    assert_eq!((db.state(long).await, written(&db).await), (Some(JobState::Completed), 1));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_transactional_job_is_found_immediately_by_a_sleeping_worker() {
    let db = TestDb::new().await;
    let mut config = queue_worker::Config::default();
    config.poll_interval = Duration::from_hours(1);
    let sleeper = Worker::new(db.pool.clone()).config(config).register::<Within>().register::<Do>();
    db.run_while(sleeper, async {
        for round in 0..10 {
            eventually("it sleeps", async || db.count("select count(*) from queue.idle").await == 1).await;
            tokio::time::sleep(Duration::from_millis(20 * round)).await;
            let mut late = sqlx::PgConnection::connect(&db.url).await.unwrap();
            let mut tx = late.begin().await.unwrap();
            let first = Within { how: "ok".to_owned() }.enqueue(&mut tx).await.unwrap().id();
            let second = enqueue(&db, "ok").await;
            db.until(second, JobState::Completed).await;
            tx.commit().await.unwrap();
            db.until(first, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

/// Job that requests a transaction although it is not transactional.
#[job(send_only, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Ordinary;

impl Handler for Ordinary {
    async fn run(self, cx: &Context) -> JobResult {
        let _ = cx.transaction().await;
        Err(Failure::terminal("not reached"))
    }
}

#[tokio::test]
async fn an_ordinary_job_that_requests_its_transaction_gets_an_error_with_the_fix() {
    let db = TestDb::new().await;
    let job = Ordinary.enqueue(&db.pool).await.unwrap().id();
    db.run_while(Worker::new(db.pool.clone()).register::<Ordinary>(), db.until(job, JobState::Dead)).await;
    assert_eq!(db.count("select count(*) from queue.dead where error like '%#[job(transactional)]%'").await, 1);
    db.finish().await;
}
