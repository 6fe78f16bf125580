//! Tests middleware around every attempt and every enqueue. Middleware runs in order and receives the handler's result. It cannot
//! complete an attempt with the output of another attempt.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use queue_core::{
    Batch, Context, Failure, Handler, Job as _, JobResult, JobState, job,
    middleware::{AttemptOutput, Middleware, Next, async_trait, on_enqueue},
    options::Outcome,
    testing,
};
use queue_worker::AttemptOutcome;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tests::{Act, Do, TestDb, Within, eventually};

tokio::task_local! {
    static TENANT: String;
}

/// Job that returns the tenant it runs for.
#[job(name = "middleware_for", output = String)]
#[derive(Serialize, Deserialize)]
struct For {
    fail: bool,
}

impl Handler for For {
    async fn run(self, _: &Context) -> JobResult<String> {
        let tenant = TENANT.try_with(String::clone).unwrap_or_default();
        if self.fail { Err(tenant.into()) } else { Ok(tenant) }
    }
}

/// Middleware that passes the job's tenant to the handler.
struct Tenancy;

#[async_trait]
impl Middleware for Tenancy {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let tenant = cx.meta().get("tenant").and_then(Value::as_str).unwrap_or("nobody");
        TENANT.scope(tenant.to_owned(), next.run()).await
    }
}

/// Recorded events, in order.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

/// Middleware that records the events that pass through it.
struct Recorder(&'static str, Events);

#[async_trait]
impl Middleware for Recorder {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let Self(name, seen) = self;
        seen.note(format!("{name} before {} {}", cx.job_type(), cx.attempt()));
        let result = next.run().await;
        seen.note(format!("{name} after {}", result.as_ref().err().map_or("fine".to_owned(), ToString::to_string)));
        result
    }
}

#[tokio::test]
async fn the_first_middleware_is_the_outermost_and_each_sees_the_handlers_result() {
    let db = TestDb::new().await;
    let seen = Events::default();
    let fine = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    let worker =
        db.worker().register::<Do>().concurrency(1).middleware(Recorder("outer", seen.clone())).middleware(Recorder("inner", seen.clone()));
    db.run_while(worker, async {
        db.until(fine, JobState::Completed).await;
        let failing = Do { act: Act::Terminal("no way".into()) }.enqueue(&db.pool).await.unwrap().id();
        db.until(failing, JobState::Dead).await;
    })
    .await;
    let expected = ["outer before do 1", "inner before do 1", "inner after fine", "outer after fine"];
    let failed = ["outer before do 1", "inner before do 1", "inner after no way", "outer after no way"];
    assert_eq!(*seen.0.lock().unwrap(), [expected, failed].concat());
    db.finish().await;
}

#[tokio::test]
async fn a_tenant_passes_from_the_enqueue_to_the_handler_in_every_kind_of_enqueue() {
    on_enqueue(|job| {
        if job.job_type() == "middleware_for"
            && let Ok(tenant) = TENANT.try_with(String::clone)
        {
            job.meta("tenant", tenant);
        }
    });
    let db = TestDb::new().await;
    let enqueue = async {
        let one = For { fail: false }.enqueue(&db.pool).await.unwrap().id();
        let tried = For { fail: false }.enqueue(&db.pool).unless_at_capacity().await.unwrap().unwrap().id();
        let own = For { fail: false }.enqueue(&db.pool).meta("tenant", "another").await.unwrap().id();
        For::enqueue_all([For { fail: false }, For { fail: false }], &db.pool).await.unwrap();
        let mut batch = Batch::new();
        batch.add(For { fail: false }).unwrap();
        batch.enqueue(&db.pool).await.unwrap();
        (one, tried, own)
    };
    let (one, tried, own) = TENANT.scope("acme".to_owned(), enqueue).await;
    let plain = For { fail: false }.enqueue(&db.pool).await.unwrap().id();
    let of = "select count(*) from queue.jobs where state = 'completed' and output #>> '{}' = 'acme'";
    db.run_while(db.worker().register::<For>().middleware(Tenancy), async {
        eventually("five are the tenant's", async || db.count(of).await == 5).await;
        for (id, tenant) in [(one, "acme"), (tried, "acme"), (own, "another"), (plain, "nobody")] {
            db.until(id, JobState::Completed).await;
            let output = "select output #>> '{}' from queue.jobs where id = $1";
            assert_eq!(sqlx::query_scalar::<_, String>(output).bind(id).fetch_one(&db.pool).await.unwrap(), tenant);
        }
    })
    .await;
    db.finish().await;
}

/// Middleware that fails, snoozes, panics or hangs on the first attempt. Later attempts run unchanged.
struct Replacement(Mutex<Option<&'static str>>);

#[async_trait]
impl Middleware for Replacement {
    async fn attempt(&self, _: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let what = self.0.lock().unwrap().take();
        match what {
            None => next.run().await,
            Some("fail") => Err("not now".into()),
            Some("snooze") => Err(Failure::snooze(Duration::from_millis(20))),
            Some("panic") => panic!("as told"),
            Some("fail after") => next.run().await.and(Err("after all".into())),
            Some(_) => std::future::pending().await,
        }
    }
}

/// Job that counts the runs of its handler.
#[job(name = "middleware_counted", max_attempts = 2, backoff = fixed("20ms", jitter = 0.0), timeout = "300ms")]
#[derive(Serialize, Deserialize)]
struct Counted;

impl Handler for Counted {
    async fn run(self, cx: &Context) -> JobResult {
        cx.state::<Arc<AtomicU32>>().fetch_add(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn the_result_of_a_middleware_is_the_outcome_of_the_attempt() {
    let db = TestDb::new().await;
    let snoozed = Outcome::Snoozed(Duration::from_millis(20));
    for (what, outcome, runs) in [
        ("fail", Outcome::Failed, 1),
        ("snooze", snoozed, 1),
        ("panic", Outcome::Panicked, 1),
        ("hang", Outcome::TimedOut, 1),
        ("fail after", Outcome::Failed, 2),
    ] {
        let (first, last, count) = (Events::default(), Events::default(), Arc::new(AtomicU32::new(0)));
        let note = |seen: &Events| {
            let seen = seen.clone();
            move |attempt: &AttemptOutcome<'_>| seen.note(format!("{:?}", attempt.outcome))
        };
        let id = Counted.enqueue(&db.pool).await.unwrap().id();
        let worker = db.worker().register::<Counted>().state(Arc::clone(&count)).middleware(Replacement(Mutex::new(Some(what))));
        let worker = worker.on_outcome(note(&first)).on_outcome(|_| panic!("a hook")).on_outcome(note(&last));
        db.run_while(worker, db.until(id, JobState::Completed)).await;
        assert_eq!(count.load(SeqCst), runs, "{what}");
        for hook in [first, last] {
            assert_eq!(*hook.0.lock().unwrap(), [format!("{outcome:?}"), "Ok".to_owned()], "each hook is called: {what}");
        }
    }
    db.finish().await;
}

#[tokio::test]
async fn the_writes_of_a_transactional_handler_are_rolled_back_if_a_middleware_fails_after_it() {
    let db = TestDb::new().await;
    let id = Within { how: "complete".to_owned() }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    let worker = db.worker().register::<Within>().middleware(Replacement(Mutex::new(Some("fail after"))));
    db.run_while(worker, db.until(id, JobState::Dead)).await;
    assert_eq!(db.count("select count(*) from effect").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn the_test_kit_runs_middleware_too() {
    let ran = testing::run(For { fail: false }).meta("tenant", "acme").middleware(Tenancy).await;
    assert_eq!(ran.output(), "acme");
    let ran = testing::run(For { fail: true }).meta("tenant", "acme").middleware(Tenancy).await;
    assert_eq!(ran.error.as_deref(), Some("acme"));
    let db = TestDb::new().await;
    let mut tx = db.pool.begin().await.unwrap();
    For { fail: false }.enqueue(&mut tx).meta("tenant", json!("acme")).await.unwrap();
    let drained = testing::drain(&mut tx).register::<For>().middleware(Tenancy).await.unwrap();
    assert_eq!(drained.outputs::<For>(), ["acme"]);
    tx.rollback().await.unwrap();
    db.finish().await;
}

/// Middleware that replaces the output of each attempt with the output of the previous attempt. The first attempt fails.
#[derive(Default)]
struct Swapping(Mutex<Option<AttemptOutput>>);

#[async_trait]
impl Middleware for Swapping {
    async fn attempt(&self, _: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let output = next.run().await?;
        match self.0.lock().unwrap().replace(output) {
            Some(kept) => Ok(kept),
            None => Err(Failure::terminal("kept")),
        }
    }
}

#[tokio::test]
async fn the_output_of_another_attempt_completes_no_job() {
    let db = TestDb::new().await;
    let enqueue = async || For { fail: false }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    let (first, second) = (enqueue().await, enqueue().await);
    let worker = db.worker().register::<For>().concurrency(1).middleware(Swapping::default());
    db.run_while(worker, async {
        db.until(first, JobState::Dead).await;
        db.until(second, JobState::Dead).await;
    })
    .await;
    let error: String = sqlx::query_scalar("select error from queue.dead where id = $1").bind(second).fetch_one(&db.pool).await.unwrap();
    assert!(error.contains(&format!("the output of attempt 1 of job {first}")), "{error}");
    db.finish().await;
}
