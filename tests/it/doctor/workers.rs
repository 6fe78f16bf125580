//! Workers, and jobs that wait for one.

use queue_core::{
    Job as _, Limit, Store,
    operate::{self, Checkup, FindingKind},
};
use tests::{Act, Do, TestDb, eventually};

use super::{found_by, is_gone, make, one};

async fn ok(db: &TestDb) -> queue_core::JobId {
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).await.unwrap().id()
}

/// A worker by its row alone, whose heartbeat lasts until then.
async fn worker(db: &TestDb, name: &str, until: &str) {
    let insert = format!(
        "insert into queue.worker (id, expires_at, started_at, name, host, pid, version, queues)
         values (gen_random_uuid(), now() + interval '{until}', now() - interval '1 hour', '{name}', 'there', 7, '0', '{{}}')"
    );
    make(&db.pool, &insert).await;
}

#[tokio::test]
async fn without_a_worker_that_is_said_and_what_it_would_serve_is_named() {
    let db = TestDb::new().await;
    ok(&db).await;
    let checkup = Checkup::default();
    assert_eq!(one(&db.pool, &checkup, FindingKind::NoWorker).await.says, "no worker lives");
    let unserved = one(&db.pool, &checkup, FindingKind::Unserved).await;
    assert_eq!((&unserved.facts["job_type"], &unserved.facts["jobs"]), (&"do".into(), &1.into()));
    db.run_while(db.worker(), async {
        is_gone(&db.pool, &checkup, FindingKind::NoWorker).await;
        is_gone(&db.pool, &checkup, FindingKind::Unserved).await;
    })
    .await;
    one(&db.pool, &checkup, FindingKind::NoWorker).await;
    db.finish().await;
}

#[tokio::test]
async fn a_silent_worker_that_holds_jobs_a_late_heartbeat_and_a_deaf_crowd_are_found() {
    let db = TestDb::new().await;
    let checkup = Checkup::default();
    worker(&db, "on time", "28 s").await;
    assert!(found_by(&db.pool, &checkup, FindingKind::LateHeartbeat).await.is_empty());
    let deaf = one(&db.pool, &checkup, FindingKind::NoListener).await;
    assert_eq!(deaf.facts["workers"], 1);
    worker(&db, "late", "5 s").await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::LateHeartbeat).await.facts["name"], "late");

    let job = ok(&db).await;
    worker(&db, "gone", "-1 minute").await;
    assert!(found_by(&db.pool, &checkup, FindingKind::SilentWorker).await.is_empty(), "it holds nothing");
    let take = "with taken as (delete from queue.ready returning id, lane)
      insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select gen_random_uuid(), (select id from queue.worker where name = 'gone'), lane, array[id], array[1::smallint], array[0::smallint] from taken";
    make(&db.pool, take).await;
    let silent = one(&db.pool, &checkup, FindingKind::SilentWorker).await;
    assert_eq!((&silent.facts["name"], &silent.facts["jobs"]), (&"gone".into(), &1.into()));
    make(&db.pool, "delete from queue.worker where name <> 'gone'").await;
    // A worker that lives and listens takes it back.
    db.run_while(db.worker(), async {
        db.until(job, queue_core::JobState::Completed).await;
        for kind in [FindingKind::SilentWorker, FindingKind::LateHeartbeat, FindingKind::NoListener] {
            is_gone(&db.pool, &checkup, kind).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_queue_at_its_capacity_and_a_limit_without_room_are_found() {
    let db = TestDb::new().await;
    let checkup = Checkup { waited: std::time::Duration::from_millis(1), ..Checkup::default() };
    for _ in 0..2 {
        ok(&db).await;
    }
    operate::set_capacity(&db.pool, Store::default(), "default", Some(3)).await.unwrap();
    assert!(found_by(&db.pool, &checkup, FindingKind::CapacityFull).await.is_empty(), "there is room for one");
    ok(&db).await;
    let full = one(&db.pool, &checkup, FindingKind::CapacityFull).await;
    assert_eq!((&full.facts["queue"], &full.facts["waiting"]), (&"default".into(), &3.into()));
    operate::set_capacity(&db.pool, Store::default(), "default", None).await.unwrap();
    is_gone(&db.pool, &checkup, FindingKind::CapacityFull).await;

    operate::set_limit(&db.pool, Store::default(), "queue:default", Limit::new().concurrency(0), None).await.unwrap();
    eventually("it has waited", async || !found_by(&db.pool, &checkup, FindingKind::LimitFull).await.is_empty()).await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::LimitFull).await.facts["waiting"], 3);
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::LimitFull).await.is_empty(), "not for ten minutes yet");
    operate::unset_limit(&db.pool, Store::default(), "queue:default").await.unwrap();
    is_gone(&db.pool, &checkup, FindingKind::LimitFull).await;
    db.finish().await;
}
