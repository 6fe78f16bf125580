//! Tests the cancellation of running jobs. The request always reaches the worker, and no further attempt follows, regardless of the result
//! of the current attempt.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use queue_core::{
    CancelReason, Context, Handler, Job as _, JobId, JobRef, JobResult, JobState, job,
    operate::OperationOutcome,
    options::{Outcome, Verdict},
    testing,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, PgConnection};
use tests::{
    Act, Do, TestDb, WorkerProcess, effects, eventually,
    protocol::{claim, give_back, recover, register, settle, silence},
};

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

async fn cancel(db: &TestDb, job: JobId) -> OperationOutcome {
    JobRef::from_id(job).cancel(&mut connect(db).await).await.unwrap()
}

/// Waits until the job's handler is running.
async fn until_running(db: &TestDb, job: JobId) {
    eventually("it runs", async || effects(&db.pool, job).await.unwrap() == 1).await;
}

fn until_cancelled(then: Act) -> Act {
    Act::UntilCancelled(Box::new(then))
}

#[tokio::test]
async fn handlers_on_two_workers_are_cancelled_and_not_retried() {
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, until_cancelled(Act::Fail("asked".into()))).await, enqueue(&db, until_cancelled(Act::Panic)).await];
    let (one, other) = (db.worker().concurrency(1), db.worker().concurrency(1));
    Box::pin(db.run_while(one, async {
        db.run_while(other, async {
            for job in jobs {
                until_running(&db, job).await;
            }
            assert_eq!(db.count("select count(distinct worker) from queue.lease").await, 2);
            for job in jobs {
                let began = Instant::now();
                assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling);
                db.until(job, JobState::Cancelled).await;
                println!("cancelled after {:?}", began.elapsed());
            }
        })
        .await;
    }))
    .await;
    for job in jobs {
        assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    }
    db.finish().await;
}

#[tokio::test]
async fn only_the_cancelled_job_is_notified() {
    let db = TestDb::new().await;
    let jobs =
        [enqueue(&db, until_cancelled(Act::Ok("all the same".into()))).await, enqueue(&db, until_cancelled(Act::Fail("no".into()))).await];
    db.run_while(db.worker(), async {
        for job in jobs {
            until_running(&db, job).await;
        }
        assert_eq!(cancel(&db, jobs[0]).await, OperationOutcome::Cancelling);
        db.until(jobs[0], JobState::Completed).await;
        assert_eq!(db.state(jobs[1]).await, Some(JobState::Running));
        assert_eq!(cancel(&db, jobs[1]).await, OperationOutcome::Cancelling);
        db.until(jobs[1], JobState::Cancelled).await;
        // The slot and the lane of the cancelled jobs remain usable.
        let next = enqueue(&db, Act::Ok(String::new())).await;
        db.until(next, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn without_notifications_a_cancellation_is_seen_within_about_a_second() {
    let db = TestDb::new().await;
    let job = enqueue(&db, until_cancelled(Act::Fail("asked".into()))).await;
    db.run_while(db.worker(), async {
        until_running(&db, job).await;
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
          where datname = current_database() and application_name = 'queue-worker listen'";
        assert_eq!(db.count(cut).await, 1);
        // Mark the job as cancelling directly instead of calling the SQL function, so that the worker receives no notification.
        let began = Instant::now();
        sqlx::query("update queue.lease set cancelling = ids").execute(&db.pool).await.unwrap();
        db.until(job, JobState::Cancelled).await;
        println!("seen after {:?}", began.elapsed());
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_handler_that_does_not_listen_is_dropped_after_the_grace() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Hang).await;
    db.run_while(db.worker().cancel_grace(Duration::from_millis(100)), async {
        until_running(&db, job).await;
        let began = Instant::now();
        assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling);
        db.until(job, JobState::Cancelled).await;
        assert!(began.elapsed() >= Duration::from_millis(100));
        assert_eq!(db.count("select count(*) from queue.failure").await, 0, "before its timeout of 5 s");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn if_the_process_is_killed_the_job_is_cancelled_instead_of_run_again() {
    let db = TestDb::new().await;
    let (job, other) =
        (enqueue(&db, Act::Hang).await, enqueue(&db, Act::FirstThen(Box::new(Act::Hang), Box::new(Act::Ok("again".into())))).await);
    let process = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    until_running(&db, job).await;
    until_running(&db, other).await;
    db.kill(process).await;
    assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling, "its end is not known yet");
    let is_cancelling = async |id| {
        let record = JobRef::from_id(id).find(&mut connect(&db).await).await.unwrap();
        (record.state, record.cancelling)
    };
    assert_eq!((is_cancelling(job).await, is_cancelling(other).await), ((JobState::Running, true), (JobState::Running, false)));
    db.run_while(db.worker(), async {
        db.until(job, JobState::Cancelled).await;
        db.until(other, JobState::Completed).await;
    })
    .await;
    assert_eq!(effects(&db.pool, job).await.unwrap(), 1);
    assert_eq!(is_cancelling(job).await, (JobState::Cancelled, false));
    db.finish().await;
}

#[tokio::test]
async fn of_all_verdicts_after_a_request_only_a_completion_counts() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    let worker = register(&mut on).await.unwrap();
    for (verdict, then) in [
        ("retry", Some(JobState::Cancelled)),
        ("snooze", Some(JobState::Cancelled)),
        ("release", Some(JobState::Cancelled)),
        ("dead", Some(JobState::Cancelled)),
        ("cancel", Some(JobState::Cancelled)),
        ("complete", Some(JobState::Completed)),
        ("plain", Some(JobState::Completed)),
        ("forget", None),
    ] {
        let (job, beside) = (enqueue(&db, Act::Hang).await, enqueue(&db, Act::Hang).await);
        let lease = claim(&mut on, worker, 2).await.unwrap();
        assert_eq!(lease.ids(), [job, beside]);
        assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling);
        assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling, "again");
        assert_eq!(settle(&mut on, &[lease.one(0, verdict)]).await.unwrap(), []);
        assert_eq!(db.state(job).await, then, "{verdict}");
        assert_eq!(settle(&mut on, &[lease.one(1, "retry")]).await.unwrap(), []);
        assert_eq!(db.state(beside).await, Some(JobState::Scheduled), "beside a job whose verdict is {verdict}");
        db.check_invariant().await;
    }
    db.finish().await;
}

#[tokio::test]
async fn a_retry_that_waits_for_the_request_to_commit_does_not_happen() {
    let db = TestDb::new().await;
    let (mut on, mut operator) = (connect(&db).await, connect(&db).await);
    let worker = register(&mut on).await.unwrap();
    let job = enqueue(&db, Act::Hang).await;
    let lease = claim(&mut on, worker, 1).await.unwrap();
    let mut tx = operator.begin().await.unwrap();
    assert_eq!(JobRef::from_id(job).cancel(&mut tx).await.unwrap(), OperationOutcome::Cancelling);
    let settling = tokio::spawn(async move { settle(&mut on, &lease.all("retry")).await.unwrap() });
    eventually("the settle waits", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").await == 1
    })
    .await;
    tx.commit().await.unwrap();
    assert_eq!(settling.await.unwrap(), []);
    assert_eq!(db.state(job).await, Some(JobState::Cancelled));
    db.finish().await;
}

#[tokio::test]
async fn recovery_and_a_released_claim_honour_the_request() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for way in ["recover", "give back"] {
        let (job, beside) = (enqueue(&db, Act::Hang).await, enqueue(&db, Act::Hang).await);
        let worker = register(&mut on).await.unwrap();
        let lease = claim(&mut on, worker, 2).await.unwrap();
        assert_eq!(cancel(&db, job).await, OperationOutcome::Cancelling);
        if way == "recover" {
            silence(&mut on, worker).await.unwrap();
            assert_eq!(recover(&mut on).await.unwrap(), 2);
        } else {
            give_back(&mut on, lease.token).await.unwrap();
        }
        assert_eq!(db.state(job).await, Some(JobState::Cancelled), "{way}");
        assert_eq!(db.state(beside).await, Some(JobState::Ready), "{way}");
        db.check_invariant().await;
        cancel(&db, beside).await;
    }
    db.finish().await;
}

/// Job that records the cancellation reason at its start, and twice after the cancellation: in a spawned task and in the handler.
#[job(send_only, name = "says_why", state(Reasons))]
#[derive(Serialize, Deserialize)]
struct RecordsReason;

#[derive(Clone, Default)]
struct Reasons(Arc<Mutex<Vec<Option<CancelReason>>>>);

impl Reasons {
    fn note(&self, reason: Option<CancelReason>) {
        self.0.lock().unwrap().push(reason);
    }

    fn take(&self) -> Vec<Option<CancelReason>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Handler for RecordsReason {
    async fn run(self, cx: &Context) -> JobResult {
        let (reasons, cancelled) = (cx.state::<Reasons>().clone(), cx.cancelled().clone());
        if cx.attempt() > 1 {
            return Ok(());
        }
        reasons.note(cancelled.reason());
        let theirs = reasons.clone();
        let task = tokio::spawn(async move {
            cancelled.cancelled().await;
            theirs.note(cancelled.reason());
        });
        cx.cancelled().cancelled().await;
        reasons.note(cx.cancelled().reason());
        task.await?;
        Err("told to end".into())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn a_handler_distinguishes_a_cancel_from_a_shutdown_and_from_a_lost_lease() {
    let db = TestDb::new().await;
    let mut on = connect(&db).await;
    for why in [CancelReason::Cancelled, CancelReason::Shutdown, CancelReason::LeaseLost] {
        let reasons = Reasons::default();
        let job = RecordsReason.enqueue(&db.pool).await.unwrap();
        // A second job of the same worker must continue to run when only the first job is cancelled.
        let other = Do { act: until_cancelled(Act::Ok(String::new())) }.enqueue(&db.pool).await.unwrap();
        let worker = Worker::new(db.pool.clone()).register::<RecordsReason>().register::<Do>().state(reasons.clone());
        // Only the `LeaseLost` case needs a short lease. In the other cases the lease must outlast a freeze of the test machine.
        let ttl = Duration::from_secs(if why == CancelReason::LeaseLost { 1 } else { 30 });
        db.run_while(worker.lease_ttl(ttl).grace(Duration::from_millis(1)), async {
            eventually("it runs", async || reasons.0.lock().unwrap().len() == 1).await;
            until_running(&db, other.id()).await;
            match why {
                CancelReason::Cancelled => {
                    assert_eq!(cancel(&db, job.id()).await, OperationOutcome::Cancelling);
                    db.until(job.id(), JobState::Cancelled).await;
                    assert_eq!(db.state(other.id()).await, Some(JobState::Running));
                }
                CancelReason::LeaseLost => {
                    let mut locked = on.begin().await.unwrap();
                    sqlx::query("select from queue.worker for update").execute(&mut *locked).await.unwrap();
                    eventually("it was notified", async || reasons.0.lock().unwrap().len() == 3).await;
                    locked.rollback().await.unwrap();
                    db.until(job.id(), JobState::Completed).await;
                }
                _ => {}
            }
        })
        .await;
        assert_eq!(reasons.take(), [None, Some(why), Some(why)]);
        if why == CancelReason::Shutdown {
            assert_eq!(db.state(job.id()).await, Some(JobState::Ready), "given back");
        }
        sqlx::query("select queue.cancel(id) from queue.jobs where state in ('ready', 'scheduled')").execute(&db.pool).await.unwrap();
    }
    db.finish().await;
}

/// Runs the handler without a worker, as in a user's test.
#[tokio::test]
async fn the_kit_cancels_a_job_and_stops_its_worker() {
    let reasons = Reasons::default();
    let attempt = testing::run(RecordsReason).state(reasons.clone()).cancelled().await;
    assert_eq!((attempt.verdict, attempt.outcome), (Verdict::Cancel, Outcome::Cancelled));
    assert_eq!(reasons.take()[1..], [Some(CancelReason::Cancelled); 2]);
    let attempt = testing::run(RecordsReason).state(reasons.clone()).shutting_down().await;
    assert_eq!(attempt.verdict, Verdict::Release);
    assert_eq!(reasons.take(), [Some(CancelReason::Shutdown); 3]);
}
