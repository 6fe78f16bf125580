//! Tests drains and assertions. Each test has its own database, and each drain runs in the test's transaction.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{
    Context, Failure, Handler, Job, JobId, JobResult, JobState, job,
    options::While,
    registry::RegistryError,
    testing::{self, Drain, assert_enqueued, assert_not_enqueued},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tests::TestDb;

const HOUR: Duration = Duration::from_hours(1);

// The job types are `send_only`, so that workers of other tests in this binary do not run them. Those workers lack the handlers' state.

/// Names of the called handlers, in the order of the calls.
type CalledHandlers = Arc<Mutex<Vec<String>>>;

#[job(name = "testing_step", send_only, max_attempts = 2, backoff = fixed("1h"), state(CalledHandlers), output = String)]
#[derive(Debug, Serialize, Deserialize)]
struct Step {
    name: String,
    how: String,
}

impl Handler for Step {
    async fn run(self, cx: &Context) -> JobResult<String> {
        cx.state::<CalledHandlers>().lock().unwrap().push(format!("{} {}", self.name, cx.attempt()));
        match self.how.as_str() {
            "fail" => return Err("as told".into()),
            "panic" => panic!("as told"),
            "hang" => std::future::pending().await,
            "snooze" => return Err(Failure::snooze(HOUR)),
            "terminal" => return Err(Failure::terminal("as told")),
            "go on" => {
                let from = cx.last_checkpoint::<u32>().await?.unwrap_or(0);
                cx.checkpoint(&(from + 1)).await?;
                if from == 0 { Err("the first half is done") } else { Ok(()) }?;
            }
            "begin" => {
                let mut tx = cx.begin().await?;
                step("child", "yes").enqueue(&mut tx).await?;
                sqlx::query("insert into effect (job) values ($1)").bind(cx.id()).execute(&mut *tx).await?;
                return tx.complete("begun".to_owned()).await;
            }
            "leave" => {
                step("lost", "yes").enqueue(&mut cx.begin().await?).await?;
                let mut tx = cx.begin().await?;
                step("lost", "yes").enqueue(&mut tx).await?;
                sqlx::query("select 1 / 0").execute(&mut *tx).await?;
            }
            "fail it" => {
                let mut tx = cx.begin().await?;
                step("heir", "yes").enqueue(&mut tx).await?;
                return Err(tx.fail("for good").await);
            }
            "forget" => drop(cx.begin().await?),
            _ => {}
        }
        Ok(self.name)
    }
}

#[job(name = "testing_whole", send_only, transactional, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Whole {
    fails: bool,
}

impl Handler for Whole {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        sqlx::query("insert into effect (job) values ($1)").bind(cx.id()).execute(&mut *tx).await?;
        if self.fails { Err("as told".into()) } else { Ok(()) }
    }
}

fn step(name: &str, how: &str) -> Step {
    Step { name: name.to_owned(), how: how.to_owned() }
}

fn drain<'t>(tx: &'t mut PgConnection, seen: &CalledHandlers) -> Drain<'t> {
    testing::drain(tx).register::<Step>().register::<Whole>().state(Arc::clone(seen))
}

async fn enqueue(tx: &mut PgConnection, how: &str) -> JobId {
    step(how, how).enqueue(tx).await.unwrap().id()
}

async fn state(tx: &mut PgConnection, job: JobId) -> JobState {
    let state: String = sqlx::query_scalar("select state from queue.jobs where id = $1").bind(job).fetch_one(tx).await.unwrap();
    state.parse().unwrap()
}

async fn count(tx: &mut PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(tx).await.unwrap()
}

const EFFECTS: &str = "select count(*) from effect";

#[tokio::test]
async fn a_drain_writes_each_verdict_where_a_worker_would_and_nothing_outlives_the_transaction() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    let mut jobs = Vec::new();
    for (how, after) in [
        ("yes", JobState::Completed),
        ("fail", JobState::Scheduled),
        ("panic", JobState::Scheduled),
        ("snooze", JobState::Scheduled),
        ("terminal", JobState::Dead),
        ("forget", JobState::Scheduled),
    ] {
        jobs.push((enqueue(&mut tx, how).await, how, after));
    }
    let drained = drain(&mut tx, &seen).await.unwrap();
    assert_eq!((drained.completed(), drained.retried(), drained.snoozed(), drained.dead()), (1, 3, 1, 1), "{drained:?}");
    assert_eq!(drained.outputs::<Step>(), ["yes"]);
    assert_eq!(drained.errors()[..3], ["as told", "panicked: as told", "as told"]);
    for (job, how, after) in &jobs {
        assert_eq!(state(&mut tx, *job).await, *after, "{how}");
        assert_eq!(drained.of(*job).count(), 1);
    }
    assert_eq!(count(&mut tx, "select count(*) from queue.failure").await, 4);
    assert!(tests::broken(&mut tx).await.unwrap().is_empty());

    let drained = drain(&mut tx, &seen).advance(HOUR).await.unwrap();
    assert_eq!((drained.retried(), drained.snoozed(), drained.dead()), (0, 1, 3), "a snooze is not charged: {drained:?}");
    tx.rollback().await.unwrap();
    assert_eq!(db.count("select count(*) from queue.jobs").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn writes_of_a_handlers_own_transaction_join_the_tests_and_are_undone_unless_completed() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    for how in ["begin", "leave", "fail it"] {
        enqueue(&mut tx, how).await;
    }
    let drained = drain(&mut tx, &seen).pool(&db.pool).await.unwrap();
    assert_eq!((drained.completed(), drained.retried(), drained.dead()), (3, 1, 1), "{drained:?}");
    assert_eq!(drained.outputs::<Step>(), ["begun", "child", "heir"]);
    assert_eq!(*seen.lock().unwrap(), ["begin 1", "leave 1", "fail it 1", "child 1", "heir 1"]);
    assert_eq!(count(&mut tx, EFFECTS).await, 1);
    assert!(tests::broken(&mut tx).await.unwrap().is_empty());
    tx.rollback().await.unwrap();
    assert_eq!(db.count(EFFECTS).await, 0);
    db.finish().await;
}

#[tokio::test]
async fn without_a_pool_a_transaction_is_an_error_that_names_the_fix() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    enqueue(&mut tx, "begin").await;
    let drained = drain(&mut tx, &seen).await.unwrap();
    assert!(drained.errors()[0].contains("testing::drain(&mut tx).pool(&pool)"), "{drained:?}");
    Whole { fails: false }.enqueue(&mut tx).await.unwrap();
    let error = drain(&mut tx, &seen).await.unwrap_err();
    assert!(matches!(error, testing::Error::NeedsPool { .. }), "{error}");
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_transactional_job_writes_in_the_tests_transaction_unless_it_fails() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    Whole { fails: true }.enqueue(&mut tx).await.unwrap();
    Whole { fails: false }.enqueue(&mut tx).await.unwrap();
    let drained = drain(&mut tx, &seen).pool(&db.pool).await.unwrap();
    assert_eq!((drained.completed(), drained.dead(), count(&mut tx, EFFECTS).await), (1, 1, 1), "{drained:?}");
    tx.commit().await.unwrap();
    assert_eq!(db.count(EFFECTS).await, 1, "the connection that was lent is the test's again");
    db.finish().await;
}

#[tokio::test]
async fn jobs_of_one_key_are_drained_in_order_and_wait_for_a_retry() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    for (name, how) in [("a", "yes"), ("b", "fail"), ("c", "yes")] {
        step(name, how).enqueue(&mut tx).key("one").await.unwrap();
    }
    step("urgent", "yes").enqueue(&mut tx).priority(200).await.unwrap();
    let drained = drain(&mut tx, &seen).await.unwrap();
    assert_eq!((drained.completed(), drained.retried()), (2, 1), "c waits behind b: {drained:?}");
    assert_eq!(*seen.lock().unwrap(), ["urgent 1", "a 1", "b 1"]);
    assert_enqueued!(&mut tx, Step { name, .. } if name == "c");
    assert_eq!(drain(&mut tx, &seen).advance(HOUR).await.unwrap().dead(), 1, "b is dead, and its key blocked");
    assert_eq!(testing::enqueued_jobs::<Step>(&mut tx).await.unwrap()[0].state, JobState::Blocked);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_uniqueness_key_is_free_once_its_job_is_drained_or_its_time_has_passed() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    let live = step("live", "yes").enqueue(&mut tx).unique("k").await.unwrap().id();
    assert_eq!(step("live", "yes").enqueue(&mut tx).unique("k").await.unwrap().id(), live);
    let hour = step("hour", "yes").enqueue(&mut tx).unique("h").unique_while(While::For(HOUR)).await.unwrap().id();
    assert_eq!(drain(&mut tx, &seen).await.unwrap().completed(), 2);
    assert_ne!(step("live", "yes").enqueue(&mut tx).unique("k").await.unwrap().id(), live);
    assert_eq!(step("hour", "yes").enqueue(&mut tx).unique("h").unique_while(While::For(HOUR)).await.unwrap().id(), hour);
    testing::advance(&mut tx, HOUR).await.unwrap();
    assert_ne!(step("hour", "yes").enqueue(&mut tx).unique("h").unique_while(While::For(HOUR)).await.unwrap().id(), hour);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_checkpoint_is_there_for_the_next_attempt_in_a_later_drain() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    let job = enqueue(&mut tx, "go on").await;
    assert_eq!(drain(&mut tx, &seen).await.unwrap().of(job).next().unwrap().checkpoint::<u32>(), Some(1));
    let drained = drain(&mut tx, &seen).advance(HOUR).await.unwrap();
    assert_eq!((drained.completed(), drained.attempts[0].number), (1, 2), "{drained:?}");
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_drain_stops_at_its_bound_and_refuses_jobs_that_no_worker_would_run() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    for _ in 0..3 {
        enqueue(&mut tx, "yes").await;
    }
    tests::Do { act: tests::Act::Panic }.enqueue(&mut tx).await.unwrap();
    assert_eq!(drain(&mut tx, &seen).at_most(2).await.unwrap().attempts.len(), 2);
    let error = testing::drain(&mut tx).register::<Step>().await.unwrap_err();
    assert!(matches!(error, testing::Error::Registry(RegistryError::MissingState { .. })), "{error}");
    assert_eq!(drain(&mut tx, &seen).await.unwrap().attempts.len(), 1, "jobs of other types stay");
    assert_enqueued!(&mut tx, tests::Do { act: tests::Act::Panic });
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_drain_that_is_dropped_gives_the_transaction_back() {
    let (db, seen) = (TestDb::new().await, CalledHandlers::default());
    let mut tx = db.pool.begin().await.unwrap();
    enqueue(&mut tx, "hang").await;
    let mut drain = Box::pin(std::future::IntoFuture::into_future(drain(&mut tx, &seen).pool(&db.pool)));
    while seen.lock().unwrap().is_empty() {
        assert!(futures_util::poll!(&mut drain).is_pending());
        tokio::task::yield_now().await;
    }
    drop(drain);
    assert_enqueued!(&mut tx, Step { .. });
    tx.rollback().await.unwrap();
    db.finish().await;
}

/// Job type without `Debug`.
#[job(name = "testing_secret", send_only)]
#[derive(Serialize, Deserialize)]
struct Secret(u32);

#[tokio::test]
async fn an_enqueued_job_is_found_by_its_pattern_with_all_its_options() {
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    step("a", "yes").enqueue(&mut tx).queue("elsewhere").priority(7).max_attempts(4).await.unwrap();
    step("b", "no").enqueue(&mut tx).after(HOUR).await.unwrap();
    Secret(4).enqueue(&mut tx).await.unwrap();
    assert_enqueued!(&mut tx, Step { name, how } if name == "a" && how == "yes");
    assert_enqueued!(&mut tx, Step { .. });
    assert_enqueued!(&mut *tx, Secret(4));
    assert_enqueued!(&mut tx, self::Secret(number) if *number > 3);
    assert_not_enqueued!(&mut tx, Step { name, .. } if name == "c");
    assert_not_enqueued!(&db.pool, Step { .. });
    let found = testing::enqueued_jobs::<Step>(&mut tx).await.unwrap();
    let (a, b) = (&found[0], &found[1]);
    assert_eq!((a.name.as_str(), a.queue.as_str(), a.priority, a.max_attempts, a.state), ("a", "elsewhere", 7, 4, JobState::Ready));
    assert_eq!((b.state, b.run_at.is_some()), (JobState::Scheduled, true));
    let names: Vec<String> = testing::enqueued::<Step>(&mut tx).await.unwrap().into_iter().map(|step| step.name).collect();
    assert_eq!(names, ["a", "b"]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

#[tokio::test]
async fn a_failed_assertion_lists_the_waiting_jobs() {
    let db = TestDb::new().await;
    step("ada", "yes").enqueue(&db.pool).await.unwrap();
    Secret(4).enqueue(&db.pool).await.unwrap();
    let pool = db.pool.clone();
    let message = panic_of(async move { assert_enqueued!(&pool, Step { name, .. } if name == "bob") }).await;
    for part in
        ["`Step { name, .. } if name == \"bob\"` is not enqueued", "name: \"ada\"", "all waiting jobs: 1 testing_secret, 1 testing_step"]
    {
        assert!(message.contains(part), "{message}");
    }
    let pool = db.pool.clone();
    let message = panic_of(async move { assert_not_enqueued!(&pool, Secret(_)) }).await;
    assert!(message.contains("`Secret(_)` is enqueued") && message.contains("derive `Debug`"), "{message}");
    db.finish().await;
}

/// Returns the panic message of a test that must fail.
async fn panic_of(test: impl Future<Output = ()> + Send + 'static) -> String {
    tokio::spawn(test).await.unwrap_err().into_panic().downcast_ref::<String>().unwrap().clone()
}
