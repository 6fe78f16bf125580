//! Tests findings about workers, and about jobs that are waiting for a worker.

use queue_core::{
    Job as _, Queue,
    operate::{Checkup, FindingKind},
    options::Limit,
};
use tests::{Act, Do, TestDb, eventually};

use super::{ask, found_by, is_gone, make, one};

async fn ok(db: &TestDb) -> queue_core::JobId {
    Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).await.unwrap().id()
}

/// Creates the row of a worker whose lease expires `until` from now.
async fn worker(db: &TestDb, name: &str, until: &str) {
    let insert = format!(
        "insert into queue.worker (id, expires_at, started_at, name, host, pid, version, queues)
         values (gen_random_uuid(), now() + interval '{until}', now() - interval '1 hour', '{name}', 'there', 7, '0', '{{}}')"
    );
    make(&db.pool, &insert).await;
}

#[tokio::test]
async fn without_a_worker_the_waiting_jobs_are_named() {
    let db = TestDb::new().await;
    ok(&db).await;
    let checkup = Checkup::default();
    assert_eq!(one(&db.pool, &checkup, FindingKind::NoWorker).await.message, "no worker is alive");
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
async fn silent_workers_with_jobs_late_heartbeats_and_workers_without_listeners_are_found() {
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
    // A live worker with a listener recovers the job.
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
    Queue::new(&db.pool).set_capacity("default", Some(3)).await.unwrap();
    assert!(found_by(&db.pool, &checkup, FindingKind::CapacityFull).await.is_empty(), "there is room for one");
    ok(&db).await;
    let full = one(&db.pool, &checkup, FindingKind::CapacityFull).await;
    assert_eq!((&full.facts["queue"], &full.facts["waiting"]), (&"default".into(), &3.into()));
    // This capacity exceeds the number of jobs that a bounded count reads.
    db.run("select queue.enqueue('do', '{}', '{\"queue\": \"large\"}') from generate_series(1, 10002)").await;
    Queue::new(&db.pool).set_capacity("large", Some(10_002)).await.unwrap();
    let large = found_by(&db.pool, &checkup, FindingKind::CapacityFull).await.into_iter().find(|of| of.facts["queue"] == "large");
    assert_eq!(large.expect("the finding").facts["waiting"], 10_002);
    db.run("delete from queue.capacity where queue = 'large'").await;
    Queue::new(&db.pool).set_capacity("default", None).await.unwrap();
    is_gone(&db.pool, &checkup, FindingKind::CapacityFull).await;

    Queue::new(&db.pool).set_limit("queue:default", Limit::new().concurrency(0), None).await.unwrap();
    eventually("it has waited", async || !found_by(&db.pool, &checkup, FindingKind::LimitFull).await.is_empty()).await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::LimitFull).await.facts["waiting"], 3);
    assert!(found_by(&db.pool, &Checkup::default(), FindingKind::LimitFull).await.is_empty(), "not for ten minutes yet");
    Queue::new(&db.pool).unset_limit("queue:default").await.unwrap();
    is_gone(&db.pool, &checkup, FindingKind::LimitFull).await;
    db.finish().await;
}

/// Backdates the matching ready jobs, as if they had waited for an hour. If `they_do` is false, restores their positions instead.
async fn wait_for_an_hour(db: &TestDb, which: &str, they_do: bool) {
    let place = if they_do { "queue.id_at(now() - interval '1 hour') + (r.id & 1023)" } else { "r.id" };
    make(&db.pool, &format!("update queue.ready r set seq = {place} where {which}")).await;
}

#[tokio::test]
async fn a_limit_is_full_only_if_its_own_jobs_have_waited() {
    let (db, checkup) = (TestDb::new().await, Checkup::default());
    let full = async || found_by(&db.pool, &checkup, FindingKind::LimitFull).await;
    let set = async |name: &str, limit: Limit| Queue::new(&db.pool).set_limit(name, limit, None).await.unwrap();
    let other = ok(&db).await;
    tests::UntilGo {}.enqueue(&db.pool).queue("quick").await.unwrap();
    wait_for_an_hour(&db, &format!("r.id = {other}"), true).await;
    set("type:until_go", Limit::new().concurrency(0)).await;
    assert!(full().await.is_empty(), "the job that has waited for an hour is of another type");
    wait_for_an_hour(&db, &format!("r.id <> {other}"), true).await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::LimitFull).await.facts["name"], "type:until_go");
    Queue::new(&db.pool).unset_limit("type:until_go").await.unwrap();
    assert!(full().await.is_empty());

    for key in ["acme", "other"] {
        Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).queue("keyed").fair(key).await.unwrap();
    }
    set("queue:keyed", Limit::new().concurrency(1).keyed()).await;
    Queue::new(&db.pool).set_limit_key("queue:keyed", "acme", Some(0)).await.unwrap();
    let of = |key: &str| format!("r.fair_id = queue.fair_id_of('{key}')");
    wait_for_an_hour(&db, &of("other"), true).await;
    assert!(full().await.is_empty(), "that key has room");
    wait_for_an_hour(&db, &of("acme"), true).await;
    let found = one(&db.pool, &checkup, FindingKind::LimitFull).await;
    assert_eq!((&found.facts["name"], &found.facts["key"]), (&"queue:keyed".into(), &"acme".into()));
    wait_for_an_hour(&db, "true", false).await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_that_an_operator_has_stopped_is_found_among_many_that_have_more_jobs() {
    let (db, checkup) = (TestDb::new().await, Checkup::default());
    let few = |key: String| Do { act: Act::Ok("done".into()) }.enqueue(&db.pool).fair(key);
    for key in 0..30 {
        for _ in 0..2 {
            few(format!("key {key}")).await.unwrap();
        }
    }
    few("acme".to_owned()).await.unwrap();
    // In the lane, the job of `acme` follows jobs of another key. There are more of them than the check scans.
    let many = "insert into queue.job (id, lane, max_attempts, payload, fair_id)
          select j.id + 100000 + n, j.lane, 3, j.payload, j.fair_id
          from (select j.* from queue.job j where j.fair_id = queue.fair_id_of('key 7') order by j.id limit 1) j, generate_series(1, 1500) n;
        insert into queue.ready (lane, seq, id, fair_id)
          select r.lane, j.id - (7200000::bigint << 20), j.id, j.fair_id
          from queue.job j
          cross join lateral (select r.lane from queue.ready r where r.fair_id = j.fair_id limit 1) r
          where not exists (select from queue.ready r where r.id = j.id)";
    make(&db.pool, many).await;
    wait_for_an_hour(&db, "r.fair_id <> queue.fair_id_of('key 7')", true).await;
    Queue::new(&db.pool).set_limit("type:do", Limit::new().concurrency(1).keyed(), None).await.unwrap();
    is_gone(&db.pool, &checkup, FindingKind::LimitFull).await;
    Queue::new(&db.pool).set_limit_key("type:do", "acme", Some(0)).await.unwrap();
    let found = one(&db.pool, &checkup, FindingKind::LimitFull).await;
    assert_eq!((&found.facts["key"], &found.facts["waiting"], &found.facts["used"]), (&"acme".into(), &1.into(), &0.into()), "{found:?}");
    Queue::new(&db.pool).set_limit_key("type:do", "key 7", Some(0)).await.unwrap();
    assert_eq!(found_by(&db.pool, &checkup, FindingKind::LimitFull).await.len(), 2, "and that of the many");
    wait_for_an_hour(&db, "true", false).await;
    db.finish().await;
}

#[tokio::test]
async fn a_failed_check_of_limits_is_reported_and_capacities_are_still_checked() {
    let (db, checkup) = (TestDb::new().await, Checkup::default());
    ok(&db).await;
    Queue::new(&db.pool).set_capacity("default", Some(1)).await.unwrap();
    let mut lock = db.pool.begin().await.unwrap();
    sqlx::query("lock table queue.bound in access exclusive mode").execute(&mut *lock).await.unwrap();
    let found = ask(&db.pool, &checkup).await.findings;
    let messages = |kind: FindingKind| found.iter().filter(|one| one.kind == kind).map(|one| one.message.as_str()).collect::<Vec<_>>();
    assert_eq!(messages(FindingKind::CapacityFull).len(), 1, "{found:#?}");
    let failed = messages(FindingKind::NotLookedAt);
    assert!(failed.len() == 1 && failed[0].starts_with("limits could not be checked: "), "{failed:?}");
    lock.rollback().await.unwrap();
    db.finish().await;
}
