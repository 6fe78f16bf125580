//! Tests findings about jobs that need an operator's attention.

use queue_core::{
    Job as _, JobState,
    operate::{Checkup, FindingKind},
};
use tests::{Act, Do, Ordered, TestDb};

use super::{found_by, is_cured, is_gone, make, one};

#[tokio::test]
async fn a_quarantined_job_is_found_until_it_has_finished() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).await.unwrap().id();
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::Suspect).await.is_empty());
    // Simulate a job whose worker process has crashed twice while running the job.
    let suspect = "insert into queue.lane (lane, queue, job_type, priority, solo)
      select queue.lane_id(queue, job_type, priority, true), queue, job_type, priority, true from queue.lane;
      update queue.ready set crashes = 2, lane = (select lane from queue.lane where solo)";
    make(&db.pool, suspect).await;
    let found = one(&db.pool, &Checkup::default(), FindingKind::Suspect).await;
    assert_eq!((&found.facts["job"], &found.facts["crashes"]), (&job.to_string().into(), &2.into()));
    db.run_until_idle(db.worker()).await;
    is_gone(&db.pool, &Checkup::default(), FindingKind::Suspect).await;
    db.finish().await;
}

#[tokio::test]
async fn a_dead_job_that_blocks_its_ordering_key_is_found_and_requeued() {
    let db = TestDb::new().await;
    let worker = || db.worker().register::<Ordered>();
    let dead = Do { act: Act::Terminal("no way".into()) }.enqueue(&db.pool).key("acme").await.unwrap().id();
    db.run_until_idle(worker()).await;
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::KeyHeld).await.is_empty(), "no job is behind it");
    let behind = Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).key("acme").await.unwrap().id();
    assert_eq!(one(&db.pool, &Checkup::default(), FindingKind::KeyHeld).await.facts["job"], dead.to_string());
    assert_eq!(db.state(behind).await, Some(JobState::Blocked));
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::KeyHeld).await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_whose_first_job_was_deleted_manually_is_found_and_continues() {
    let db = TestDb::new().await;
    let first = Do::ok().enqueue(&db.pool).key("acme").await.unwrap().id();
    let second = Do::ok().enqueue(&db.pool).key("acme").await.unwrap().id();
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::KeyWithoutHead).await.is_empty(), "it is there");
    db.run(&format!("delete from queue.ready where id = {first}; delete from queue.job where id = {first}")).await;
    let found = one(&db.pool, &Checkup::default(), FindingKind::KeyWithoutHead).await;
    assert_eq!((found.facts["job"].clone(), found.facts["head"].clone()), (second.to_string().into(), first.to_string().into()));
    is_cured(&db.url, &db.pool, &Checkup::default(), FindingKind::KeyWithoutHead).await;
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(second).await, Some(JobState::Completed));
    db.finish().await;
}
