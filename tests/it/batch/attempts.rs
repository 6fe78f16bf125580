//! Tests running batches: cancelled jobs, worker shutdown, lost leases, and handlers that commit jobs in their own transactions.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use queue_core::{
    Context, Failure, Job as _, JobId, JobRef, JobResult, JobState,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    middleware::{AttemptOutput, Middleware, Next, async_trait},
    operate::OperationOutcome,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tests::{Do, Part, TestDb, effects, eventually};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{enqueue, in_state, worker};

async fn cancel(db: &TestDb, job: JobId) -> OperationOutcome {
    JobRef::from_id(job).cancel(&mut PgConnection::connect(&db.url).await.unwrap()).await.unwrap()
}

/// Batch job that waits until the test opens the gate. The name in the payload then determines the job's result.
#[job(name = "batch_gated", batch = 10, batch_wait = "100ms", max_attempts = 3, backoff = fixed("30ms"), output = String, key = self.key)]
#[derive(Serialize, Deserialize)]
struct Gated {
    name: String,
    key: String,
}

fn gated(name: &str) -> Gated {
    Gated { name: name.to_owned(), key: name.to_owned() }
}

/// State shared by the test and the handler.
#[derive(Clone)]
struct Gate {
    open: Arc<Semaphore>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    fn new() -> Self {
        Self { open: Arc::new(Semaphore::new(0)), seen: Arc::default() }
    }

    fn note(&self, what: impl Into<String>) {
        self.seen.lock().unwrap().push(what.into());
    }

    fn has(&self, what: &str) -> bool {
        self.seen.lock().unwrap().iter().any(|seen| seen == what)
    }
}

impl BatchHandler for Gated {
    async fn run(batch: &mut JobBatch<Self>, cx: &BatchContext) -> JobResult {
        let gate = cx.state::<Gate>();
        let names: Vec<&str> = batch.iter().map(|job| job.payload().name.as_str()).collect();
        gate.note(format!("began {}", names.join(" ")));
        while gate.open.try_acquire().map(SemaphorePermit::forget).is_err() {
            if batch.iter().any(queue_core::batch::BatchJob::is_cancelled) && !gate.has("told") {
                gate.note("told");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for job in batch.iter_mut() {
            if job.is_cancelled() {
                gate.note(format!("{} {:?}", job.payload().name, job.cancelled().reason()));
                continue;
            }
            match job.payload().name.as_str() {
                "silent" => {}
                "own" => {
                    let mut tx = job.begin().await?;
                    Do { act: tests::Act::Ok("child".into()) }.enqueue(&mut tx).await?;
                    tx.complete("by its own commit".to_owned()).await?;
                }
                "undone" => {
                    drop(job.begin().await?);
                    job.complete("not by its commit".to_owned());
                }
                "reports" => {
                    job.progress(0.5);
                    job.checkpoint("here").await?;
                    let last: Option<String> = job.last_checkpoint().await?;
                    job.complete(format!("{last:?}"));
                }
                name => {
                    let output = format!("{name} {} {:?}", job.attempt(), job.meta().get("tenant"));
                    job.complete(output);
                }
            }
        }
        Ok(())
    }
}

async fn put(db: &TestDb, names: &[&str]) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for name in names {
        jobs.push(gated(name).enqueue(&db.pool).meta("tenant", *name).await.unwrap().id());
    }
    jobs
}

async fn output(db: &TestDb, job: JobId) -> Option<String> {
    sqlx::query_scalar("select output #>> '{}' from queue.jobs where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_cancelled_job_of_a_running_batch_is_notified_and_the_others_continue() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    let jobs = put(&db, &["a", "b", "silent"]).await;
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()).cancel_grace(Duration::from_millis(50)), async {
        eventually("it runs", async || gate.has("began a b silent")).await;
        assert_eq!(cancel(&db, jobs[1]).await, OperationOutcome::Cancelling);
        eventually("its handler can know", async || gate.has("told")).await;
        gate.open.add_permits(1);
        eventually("it is cancelled", async || in_state(&db, "cancelled").await == 1).await;
        assert!(gate.has("b Some(Cancelled)"), "{:?}", gate.seen);
        db.until(jobs[0], JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_batch_all_of_whose_jobs_are_cancelled_is_dropped_after_the_grace() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    let jobs = put(&db, &["a", "b"]).await;
    // The handler waits for the gate, which stays closed.
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()).cancel_grace(Duration::from_millis(50)), async {
        eventually("it runs", async || gate.has("began a b")).await;
        for job in jobs {
            assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling);
        }
        eventually("both are cancelled", async || in_state(&db, "cancelled").await == 2).await;
    })
    .await;
    assert!(!gate.has("a Some(Cancelled)"), "{:?}", gate.seen);
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_cancelled_job_without_a_result_is_not_completed_by_the_others() {
    let db = TestDb::new().await;
    let jobs = enqueue(&db, vec![Part::First(Box::new(Part::UntilCancelled)), Part::Rest, Part::Complete]).await;
    db.run_while(worker(&db).grace(Duration::from_secs(5)), async {
        eventually("it runs", async || effects(&db.pool, jobs[0]).await.unwrap() == 1).await;
        assert_eq!(cancel(&db, jobs[1]).await, OperationOutcome::Cancelling);
        // The handler waits for the cancellation of the whole batch. Only one job is cancelled, so the handler reaches its timeout.
        db.until(jobs[1], JobState::Cancelled).await;
        db.until(jobs[2], JobState::Completed).await;
        db.until(jobs[0], JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_shutdown_keeps_results_and_releases_the_rest_uncharged() {
    let db = TestDb::new().await;
    let jobs = enqueue(&db, vec![Part::Complete, Part::Rest, Part::UntilCancelled, Part::Dead]).await;
    db.run_while(worker(&db).grace(Duration::from_millis(10)), async {
        eventually("it runs", async || effects(&db.pool, jobs[0]).await.unwrap() == 1).await;
    })
    .await;
    let states: Vec<(String, i16)> =
        sqlx::query_as("select state, attempts::smallint from queue.jobs order by id").fetch_all(&db.pool).await.unwrap();
    let row = |state: &str, attempts| (state.to_owned(), attempts);
    assert_eq!(states, [row("completed", 1), row("ready", 0), row("ready", 0), row("dead", 1)]);
    db.finish().await;
}

#[tokio::test]
async fn a_handler_that_ignores_cancellation_is_dropped_and_its_results_stay() {
    let db = TestDb::new().await;
    let jobs = enqueue(&db, vec![Part::Complete, Part::Hang]).await;
    db.run_while(worker(&db).grace(Duration::from_millis(10)), async {
        eventually("it runs", async || effects(&db.pool, jobs[0]).await.unwrap() == 1).await;
    })
    .await;
    assert_eq!((db.state(jobs[0]).await, db.state(jobs[1]).await), (Some(JobState::Completed), Some(JobState::Ready)));
    assert_eq!(db.count("select count(*) from queue.ready where attempts = 0").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_batch_whose_lease_is_lost_writes_nothing_and_other_workers_run_its_jobs() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    let jobs = put(&db, &["a", "b"]).await;
    let config = db.worker().register_batch::<Gated>().state(gate.clone()).lease_ttl(Duration::from_secs(1));
    db.run_while(config, async {
        eventually("it runs", async || gate.has("began a b")).await;
        db.pool.execute("update queue.worker set expires_at = now() - interval '1 second'").await.unwrap();
        // The process registers again under a new worker id. The recovered jobs are quarantined, so each job runs alone.
        eventually("each runs again, alone", async || gate.has("began a") && gate.has("began b")).await;
        gate.open.add_permits(10);
        eventually("both have finished", async || in_state(&db, "completed").await == 2).await;
    })
    .await;
    let outputs = (output(&db, jobs[0]).await.unwrap(), output(&db, jobs[1]).await.unwrap());
    assert!(outputs.0.starts_with("a 2 ") && outputs.1.starts_with("b 2 "), "results of the first attempt do not count: {outputs:?}");
    assert!(gate.has("began a") && gate.has("began b"), "{:?}", gate.seen);
    db.finish().await;
}

#[tokio::test]
async fn a_job_of_a_batch_has_its_own_transaction_reports_and_metadata() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    gate.open.add_permits(100);
    let jobs = put(&db, &["own", "undone", "reports", "plain"]).await;
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()), async {
        eventually("all have finished", async || in_state(&db, "completed").await == 4 && in_state(&db, "dead").await == 1).await;
    })
    .await;
    assert_eq!(output(&db, jobs[0]).await.as_deref(), Some("by its own commit"));
    assert_eq!(output(&db, jobs[2]).await.as_deref(), Some("Some(\"here\")"));
    assert_eq!(output(&db, jobs[3]).await.as_deref(), Some("plain 1 Some(String(\"plain\"))"));
    let error: String = sqlx::query_scalar("select error from queue.dead where id = $1").bind(jobs[1]).fetch_one(&db.pool).await.unwrap();
    assert!(error.contains("without completing it"), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn if_some_outputs_are_missing_the_other_jobs_are_not_completed() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    gate.open.add_permits(100);
    let jobs = put(&db, &["silent", "a"]).await;
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()), async {
        db.until(jobs[1], JobState::Completed).await;
        db.until(jobs[0], JobState::Dead).await;
    })
    .await;
    let error: String = sqlx::query_scalar("select error from queue.dead").fetch_one(&db.pool).await.unwrap();
    assert!(error.contains("without an output"), "{error}");
    db.finish().await;
}

#[tokio::test]
async fn jobs_of_one_key_are_never_in_one_batch() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    gate.open.add_permits(100);
    for name in ["a", "b", "c"] {
        Gated { name: name.to_owned(), key: "one".to_owned() }.enqueue(&db.pool).await.unwrap();
    }
    let other = gated("d").enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()), async {
        eventually("all have finished", async || in_state(&db, "completed").await == 4).await;
    })
    .await;
    assert_eq!(*gate.seen.lock().unwrap(), ["began a d", "began b", "began c"]);
    assert!(output(&db, other).await.is_some());
    db.finish().await;
}

#[tokio::test]
async fn a_payload_that_cannot_be_decoded_delays_no_other() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    gate.open.add_permits(100);
    let jobs = put(&db, &["a", "b", "c"]).await;
    sqlx::query("update queue.job set payload = '{\"name\": 5}' where id = $1").bind(jobs[1]).execute(&db.pool).await.unwrap();
    db.run_while(db.worker().register_batch::<Gated>().state(gate.clone()), async {
        eventually("the others have finished", async || in_state(&db, "completed").await == 2 && in_state(&db, "scheduled").await == 1)
            .await;
    })
    .await;
    assert!(gate.has("began a c"), "{:?}", gate.seen);
    let error: String = sqlx::query_scalar("select error from queue.failure").fetch_one(&db.pool).await.unwrap();
    assert!(error.contains("does not fit") && !error.contains("batch of"), "{error}");
    db.finish().await;
}

/// Middleware whose effect on each attempt is specified in the job's metadata.
struct Interfering(Gate);

#[async_trait]
impl Middleware for Interfering {
    async fn attempt(&self, cx: &Context, next: Next<'_>) -> Result<AttemptOutput, Failure> {
        let name = cx.meta().get("tenant").and_then(|tenant| tenant.as_str()).unwrap_or_default().to_owned();
        self.0.note(format!("before {name}"));
        match name.as_str() {
            "refused" => return Err(Failure::terminal("not this one")),
            "panics" => panic!("as told"),
            _ => {}
        }
        let result = next.run().await;
        self.0.note(format!("after {name} {}", result.is_ok()));
        if name == "spoilt" { Err(Failure::terminal("after all")) } else { result }
    }
}

#[tokio::test]
async fn middleware_runs_around_the_attempt_of_each_job() {
    let (db, gate) = (TestDb::new().await, Gate::new());
    gate.open.add_permits(100);
    let jobs = put(&db, &["a", "refused", "panics", "spoilt", "silent"]).await;
    let worker = db.worker().register_batch::<Gated>().state(gate.clone()).middleware(Interfering(gate.clone()));
    db.run_while(worker, async {
        eventually("all have finished", async || in_state(&db, "completed").await == 1 && in_state(&db, "dead").await == 4).await;
    })
    .await;
    let seen = gate.seen.lock().unwrap().clone();
    assert_eq!(seen[..5], ["before a", "before refused", "before panics", "before spoilt", "before silent"]);
    assert_eq!(seen[5], "began a spoilt silent", "those whose middleware let them through");
    for expected in ["after a true", "after spoilt true", "after silent false"] {
        assert!(seen[6..].iter().any(|seen| seen == expected), "{expected}: {seen:?}");
    }
    assert_eq!(db.state(jobs[0]).await, Some(JobState::Completed));
    let errors: Vec<String> = sqlx::query_scalar("select error from queue.dead order by id").fetch_all(&db.pool).await.unwrap();
    assert_eq!(errors[..3], ["not this one", "panicked: as told", "after all"]);
    assert!(!seen.iter().any(|seen| seen.starts_with("after refused") || seen.starts_with("after panics")));
    db.finish().await;
}

#[tokio::test]
async fn results_of_jobs_pass_their_middleware_when_others_panic() {
    let db = TestDb::new().await;
    let gate = Gate::new();
    let first = Part::First(Box::new(Part::Panic));
    let jobs = enqueue(&db, vec![Part::Complete, first]).await;
    db.run_while(worker(&db).middleware(Interfering(gate.clone())), async {
        db.until(jobs[0], JobState::Completed).await;
        db.until(jobs[1], JobState::Completed).await;
    })
    .await;
    let after = gate.seen.lock().unwrap().iter().filter(|seen| seen.starts_with("after")).count();
    assert_eq!((after, effects(&db.pool, jobs[0]).await.unwrap(), effects(&db.pool, jobs[1]).await.unwrap()), (2, 1, 2));
    db.finish().await;
}
