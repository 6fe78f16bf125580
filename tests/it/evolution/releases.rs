//! Tests workers of an old and a new release that run at the same time, during a deployment and during its rollback. Also tests a killed
//! worker.

use std::time::{Duration, Instant};

use queue_core::{Batch, Job as _, JobId, JobState, Queue};
use tests::{TestDb, WorkerProcess, eventually, release::second};

use super::{about, of_first, of_second, of_third, output, to, to_all};

const BINARY: &str = env!("CARGO_BIN_EXE_test-release-worker");

fn release(db: &TestDb, which: &str) -> WorkerProcess {
    WorkerProcess::start_logged(BINARY, &db.url, &[("RELEASE", which)])
}

#[tokio::test]
async fn an_older_worker_does_not_claim_newer_jobs_sleeps_and_reports_them() {
    let db = TestDb::new().await;
    let newer: Vec<JobId> = vec![
        about("ada", "tea").enqueue(&db.pool).await.unwrap().id(),
        to_all(&["bea"]).enqueue(&db.pool).priority(200).await.unwrap().id(),
    ];
    let worker = of_first(&db).lease_ttl(Duration::from_secs(2));
    db.run_while(worker, async {
        let older = to("cid").enqueue(&db.pool).await.unwrap().id();
        db.until(older, JobState::Completed).await;
        eventually("the worker sleeps, with jobs in its queue", async || db.count("select count(*) from queue.idle").await == 1).await;
        let unserved = Queue::new(&db.pool).unserved().await.unwrap();
        let seen: Vec<_> = unserved.iter().map(|waits| (waits.job_type.as_str(), waits.version, waits.jobs)).collect();
        assert_eq!(seen, [("release_mail", 2, 1), ("release_mail", 3, 1)]);
    })
    .await;
    for job in &newer {
        assert_eq!(db.state(*job).await, Some(JobState::Ready));
    }
    let touched = "select count(*) from queue.ready where attempts > 0 or seq <> id";
    assert_eq!(db.count(touched).await, 0, "nothing was charged, and nothing went back and forth");
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.run_while(of_second(&db), db.until(newer[1], JobState::Completed)).await;
    assert_eq!(db.state(newer[0]).await, Some(JobState::Ready), "the second release does not know the third");
    db.run_until_idle(of_third(&db)).await;
    assert_eq!(output(&db, newer[0]).await, "third: ada about tea from 3");
    db.finish().await;
}

#[tokio::test]
async fn two_concurrent_releases_run_all_jobs_each_only_its_known_ones() {
    let db = TestDb::new().await;
    let (old, new) = (release(&db, "1"), release(&db, "2"));
    let mut batch = Batch::new();
    for n in 0..100 {
        batch.add(to(&format!("a{n}"))).unwrap();
        batch.add(to_all(&[&format!("b{n}")])).unwrap().key(format!("k{}", n % 7));
    }
    let mut ids = batch.enqueue(&db.pool).await.unwrap();
    for n in 100..150 {
        ids.push(to(&format!("a{n}")).enqueue(&db.pool).await.unwrap().id());
        ids.push(to_all(&[&format!("b{n}")]).enqueue(&db.pool).await.unwrap().id());
    }
    let all_done = async || db.count("select count(*) from queue.done").await == 300;
    eventually("all are completed", all_done).await;
    assert_eq!(db.count("select count(*) from queue.done where attempts <> 1").await, 0, "none was tried by a worker that cannot read it");
    let of = async |like: &str| db.count(&format!("select count(*) from queue.done where output #>> '{{}}' like '{like}'")).await;
    assert_eq!(of("first: b%").await, 0, "the old release runs nothing of the new one");
    assert_eq!(of("second: b%").await, 150);
    assert_eq!(of("first: a%").await + of("second: a%").await, 150);

    // The deployment is rolled back. Jobs of the new version wait, and no job is lost.
    drop(new);
    let waits = to_all(&["late"]).enqueue(&db.pool).await.unwrap().id();
    let runs = to("early").enqueue(&db.pool).await.unwrap().id();
    db.until(runs, JobState::Completed).await;
    assert_eq!(output(&db, runs).await, "first: early");
    assert_eq!(db.state(waits).await, Some(JobState::Ready));
    let again = release(&db, "3");
    db.until(waits, JobState::Completed).await;
    assert_eq!(output(&db, waits).await, "third: late about none from 2");
    drop((old, again));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_quarantined_job_of_a_newer_version_is_left_to_workers_that_know_it() {
    let db = TestDb::new().await;
    let old = release(&db, "1");
    let killed = release(&db, "2");
    let job = second::Mail { to: vec!["hang".to_owned()] }.enqueue(&db.pool).await.unwrap().id();
    db.until(job, JobState::Running).await;
    db.kill(killed).await;
    db.until(job, JobState::Ready).await;
    let crashed = "select count(*) from queue.ready r join queue.lane l using (lane) where l.solo and l.job_type = 'release_mail@2'";
    assert_eq!(db.count(crashed).await, 1, "it is claimed by itself from now on, under its version");
    let beside = to("ada").enqueue(&db.pool).await.unwrap().id();
    db.until(beside, JobState::Completed).await;
    assert_eq!(db.state(job).await, Some(JobState::Ready));
    // A worker reports jobs of unknown versions one lease duration after its start, and then once a minute.
    let (began, second) = (Instant::now(), release(&db, "1"));
    eventually("the old release reports it", async || {
        let log = second.log_since(began.checked_sub(Duration::from_mins(1)).unwrap()).join("\n");
        log.contains("with this version of the job type") && log.contains("version=2")
    })
    .await;
    let third = release(&db, "3");
    db.until(job, JobState::Completed).await;
    assert_eq!(output(&db, job).await, "third: hang about none from 2");
    drop((old, second, third));
    db.finish().await;
}
