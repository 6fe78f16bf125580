//! Tests the diagnosis of a running job, of a running job with a requested cancellation, and of a job whose worker's lease has expired.

use queue_core::{Job as _, JobState, operate::CauseKind};
use tests::{Act, Do, WorkerProcess, eventually};

use super::{TestDb, WORKER, ask, busy, completes, cure, fact, first, go, kinds, run, until_first};

#[tokio::test]
async fn a_running_job_shows_its_worker_start_time_and_progress() {
    let db = TestDb::new().await;
    let worker = WorkerProcess::start(WORKER, &db.url, &[]);
    let job = busy(&db).await;
    let cause = first(&db, job, CauseKind::Running).await;
    assert_eq!((fact(&cause, "pid"), fact(&cause, "attempt")), (&worker.pid().into(), &1.into()));
    for name in ["claimed_at", "beat_at", "worker", "host", "name"] {
        assert!(fact(&cause, name).is_string(), "{name}: {cause:?}");
    }
    assert!(cause.message.contains("runs it, or is about to") && cause.fix.is_none(), "nothing was reported: {}", cause.message);
    sqlx::query("insert into queue.progress (id, attempt, fraction, stage) values ($1, 1, 0.25, 'half of it')")
        .bind(job)
        .execute(&db.pool)
        .await
        .unwrap();
    let cause = first(&db, job, CauseKind::Running).await;
    assert!(cause.message.contains("runs it; ") && cause.message.contains("25%, `half of it`"), "{}", cause.message);
    sqlx::query("update queue.progress set attempt = 0").execute(&db.pool).await.unwrap();
    assert!(first(&db, job, CauseKind::Running).await.message.contains("about to"), "an earlier attempt reported it");
    go(&db).await;
    completes(&db, job).await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_is_being_cancelled_is_shown_as_such() {
    let db = TestDb::new().await;
    db.run_while(super::worker(&db), async {
        let job =
            Do { act: Act::UntilCancelled(Box::new(Act::UntilGo(Box::new(Act::Fail("told".into()))))) }.enqueue(&db.pool).await.unwrap();
        db.until(job.id(), JobState::Running).await;
        job.cancel(&db.pool).await.unwrap();
        let cause = first(&db, job.id(), CauseKind::Cancelling).await;
        assert!(cause.message.contains("is cancelling it"), "{}", cause.message);
        go(&db).await;
        db.until(job.id(), JobState::Cancelled).await;
        first(&db, job.id(), CauseKind::Cancelled).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_silent_worker_is_named_and_another_takes_its_job() {
    let db = TestDb::new().await;
    let worker = WorkerProcess::start(WORKER, &db.url, &[]);
    let job = busy(&db).await;
    let pid = worker.pid();
    db.kill(worker).await;
    let cause = until_first(&db, job, CauseKind::SilentWorker).await;
    assert_eq!((fact(&cause, "pid"), fact(&cause, "workers")), (&pid.into(), &0.into()));
    assert!(cause.message.contains("no worker is alive to recover it") && cause.fix.unwrap().contains("queue-worker run"));
    go(&db).await;
    db.run_while(super::worker(&db), completes(&db, job)).await;
    let cause = first(&db, job, CauseKind::Completed).await;
    assert!(cause.facts["failures"][0]["error"].as_str().unwrap().contains("process ended"), "{cause:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_locked_lease_names_the_session_and_continues_without_it() {
    let db = TestDb::new().await;
    let worker = WorkerProcess::start(WORKER, &db.url, &[]);
    let job = busy(&db).await;
    let mut holder = super::connect(&db).await;
    run(&mut holder, "set application_name = 'by hand'; begin; select from queue.lease for update").await;
    let cause = until_first(&db, job, CauseKind::LeaseLocked).await;
    assert_eq!((fact(&cause, "silent"), &cause.facts["sessions"][0]["application"]), (&false.into(), &"by hand".into()));
    assert_eq!(kinds(&ask(&db, job).await), [CauseKind::LeaseLocked, CauseKind::Running]);
    db.kill(worker).await;
    eventually("its worker is silent", async || ask(&db, job).await.first().facts.get("silent") == Some(&true.into())).await;
    let cause = first(&db, job, CauseKind::LeaseLocked).await;
    assert!(cause.message.contains("cannot be recovered"), "{}", cause.message);
    go(&db).await;
    db.run_while(super::worker(&db), async {
        cure(&db, &cause).await;
        completes(&db, job).await;
    })
    .await;
    db.finish().await;
}
