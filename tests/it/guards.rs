//! Tests SQL guards that no other test covers. A guard is a clause that enforces a property, such as the order of rows, the
//! maximum size of a history row or unique names. `cargo guards` removes one guard at a time and requires a test to fail.

mod control;
mod forgotten;
mod late;
mod queries;
mod notices;
mod order;
mod prune;
mod reports;
mod rows;
mod single;

use queue_core::{JobId, JobState, Store};
use sqlx::{Connection as _, PgConnection};
use tests::{
    TestDb, operate,
    protocol::{self, Lease, claim, register, settle},
};
use uuid::Uuid;

async fn connect(db: &TestDb) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

/// Enqueues one job for each entry of `queues`, in the given order.
async fn enqueue(on: &mut PgConnection, queues: &[&str]) -> Vec<JobId> {
    let mut ids = Vec::new();
    for queue in queues {
        ids.push(operate::enqueue(on, queue, 100, false).await.unwrap());
    }
    ids
}

async fn lanes(on: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar("select distinct lane from queue.lane order by lane").fetch_all(on).await.unwrap()
}

#[tokio::test]
async fn claims_begin_at_the_floor_of_each_lane_and_take_at_most_the_requested_number() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let mut jobs = enqueue(&mut connection, &["a", "a", "a", "b", "b", "b"]).await;
    let all = lanes(&mut connection).await;
    let of: i64 = sqlx::query_scalar("select lane from queue.ready where id = $1").bind(jobs[0]).fetch_one(&mut connection).await.unwrap();
    if all[0] != of {
        jobs.rotate_left(3);
    }
    let floors = [jobs[1].0, jobs[4].0];
    let worker = register(&mut connection).await.unwrap();
    let lease = protocol::claim_of(&mut connection, worker, &all, &floors, &[1, 2], 9).await.unwrap();
    let mut expected = vec![jobs[1], jobs[4], jobs[5]];
    expected.sort_unstable();
    assert_eq!(lease.ids(), expected);
    let lane: Option<i64> = sqlx::query_scalar("select lane from queue.lease").fetch_one(&mut connection).await.unwrap();
    assert_eq!(lane, None, "it is of two");
    let rest = protocol::claim_of(&mut connection, worker, &all, &[0, 0], &[9, 9], 2).await.unwrap();
    assert_eq!(rest.jobs.len(), 2, "no more than the total maximum");
    db.finish().await;
}

#[tokio::test]
async fn each_transactional_job_has_its_own_lease_and_others_share_one() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    enqueue(&mut connection, &["a", "b", "a", "b", "a"]).await;
    let (all, worker) = (lanes(&mut connection).await, register(&mut connection).await.unwrap());
    let leases = tests::lanes::claim_each(&mut connection, worker, &all, 9, 1).await.unwrap();
    let count = leases.len() - 1;
    assert!(leases[..count].iter().all(|lease| lease.jobs.len() == 1) && leases[count].jobs.len() == 5 - count);
    for Lease { token, jobs } in &leases {
        let listed = "select lane, ids, attempts, crashes from queue.lease where token = $1";
        let listed: (i64, Vec<JobId>, Vec<i16>, Vec<i16>) = sqlx::query_as(listed).bind(token).fetch_one(&mut connection).await.unwrap();
        let mut ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        ids.sort_unstable();
        assert_eq!(listed, (jobs[0].lane, ids, vec![1; jobs.len()], vec![0; jobs.len()]));
    }
    for lease in &leases {
        assert_eq!(settle(&mut connection, &lease.all("complete")).await.unwrap(), []);
    }
    assert_eq!(db.count("select count(*) from queue.lease").await, 0, "no other lease lists any of them");
    db.finish().await;
}

#[tokio::test]
async fn a_lease_that_lists_more_jobs_than_there_are_verdicts_is_not_settled_as_a_whole() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    enqueue(&mut connection, &["default"; 5]).await;
    let worker = register(&mut connection).await.unwrap();
    let (two, three) = (claim(&mut connection, worker, 2).await.unwrap(), claim(&mut connection, worker, 3).await.unwrap());
    let tokens = [two.token, three.token];
    for (counts, refused) in [([1, 1], 2), ([3, 2], 2), ([3, 3], 1)] {
        let found = protocol::settle_leases_of(&mut connection, &tokens, &[], &counts).await.unwrap();
        assert_eq!(found, tokens[..refused], "{counts:?}");
    }
    assert_eq!(db.count("select sum(cardinality(ids)) from queue.done_many").await, 3);
    assert_eq!(settle(&mut connection, &two.all("complete")).await.unwrap(), []);
    db.finish().await;
}

#[tokio::test]
async fn a_completed_job_is_in_history_for_any_attempt_number() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let jobs = enqueue(&mut connection, &["default"; 4]).await;
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 4).await.unwrap();
    let mut verdicts = lease.all("plain");
    for (one, attempts) in verdicts.iter_mut().zip([-1, 0, 1, 2]) {
        one.job.attempts = attempts;
    }
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    for job in jobs {
        assert_eq!(db.state(job).await, Some(JobState::Completed), "{job}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_lost_its_payload_is_claimed_so_that_it_can_end() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let jobs = enqueue(&mut connection, &["default"; 2]).await;
    sqlx::query("delete from queue.job").execute(&mut connection).await.unwrap();
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 2).await.unwrap();
    assert_eq!(lease.ids(), jobs);
    assert_eq!(settle(&mut connection, &lease.all("forget")).await.unwrap(), []);
    db.finish().await;
}

/// Creates jobs with these ids under one lease. The jobs alternate between the lanes `of`. The lease has a lane only if `of` contains a
/// single lane.
async fn leased(on: &mut PgConnection, ids: &[i64], of: &[i64]) -> Lease {
    let (worker, token) = (register(on).await.unwrap(), Uuid::new_v4());
    let lanes: Vec<i64> = of.iter().cycle().take(ids.len()).copied().collect();
    let jobs = "insert into queue.job (id, lane, max_attempts, payload) select id, lane, 3, '{}' from unnest($1::bigint[], $2::bigint[]) j (id, lane)";
    sqlx::query(jobs).bind(ids).bind(&lanes).execute(&mut *on).await.unwrap();
    let lease = "insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select $1, $2, $4, $3, array_fill(1::smallint, array[cardinality($3)]), array_fill(0::smallint, array[cardinality($3)])";
    let one = if of.len() == 1 { Some(of[0]) } else { None };
    sqlx::query(lease).bind(token).bind(worker).bind(ids).bind(one).execute(on).await.unwrap();
    let jobs = ids.iter().zip(lanes).map(|(id, lane)| protocol::ClaimedJob { id: JobId(*id), lane, attempts: 1, crashes: 0, key: None });
    Lease { token, jobs: jobs.collect() }
}

/// First id of a day that begins inside a span of 2^33 ids, not at its boundary.
const MIDNIGHT: i64 = (20_001 * 86_400_000) << 20;

#[tokio::test]
async fn a_lane_that_was_written_twice_doubles_nothing() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let jobs = enqueue(&mut connection, &["a", "b", "a", "b", "a", "b"]).await;
    sqlx::raw_sql("insert into queue.lane select * from queue.lane").execute(&mut connection).await.unwrap();
    let worker = register(&mut connection).await.unwrap();
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    assert_eq!(operate::give_back(&mut connection, &[lease.token]).await.unwrap(), 6);
    let lease = claim(&mut connection, worker, 10).await.unwrap();
    let verdicts = [lease.one(0, "dead"), lease.one(1, "dead"), lease.one(2, "retry"), lease.one(3, "retry")];
    assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    protocol::silence(&mut connection, worker).await.unwrap();
    assert_eq!(protocol::recover(&mut connection).await.unwrap(), 2);
    sqlx::query("update queue.scheduled set run_at = now()").execute(&mut connection).await.unwrap();
    let promote = sqlx::query_as(Store::default().sql(include_str!("../../queue-worker/sql/promote.sql"))).bind(10_i64);
    let mut promoted: Vec<(String, i64)> = promote.fetch_all(&mut connection).await.unwrap();
    promoted.sort();
    assert_eq!(promoted, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    assert_eq!(operate::requeue(&mut connection, &jobs).await.unwrap().len(), 2);
    db.check_invariant().await;
    let wrong = "select count(*) from queue.ready r join queue.job j on j.id = r.id join queue.lane l on l.lane = r.lane
      where queue.lane_id(l.queue, l.job_type, l.priority, false) <> j.lane";
    assert_eq!(db.count(wrong).await, 0, "each is in a lane of its own queue");
    assert_eq!(operate::cancel(&mut connection, &jobs).await.unwrap().len(), 6);
    assert!(operate::reopen(&mut connection, jobs[0]).await.unwrap());
    db.finish().await;
}

#[tokio::test]
async fn a_suspect_job_moves_to_the_solo_twin_of_its_own_type_and_keeps_its_duration() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let text =
        "select queue.insert_job(t, '{}', q, p::smallint) from unnest(array['x', 'y']) t, unnest(array['q', 'r']) q, unnest(array[1, 2]) p";
    let jobs: Vec<JobId> = sqlx::query_scalar(text).fetch_all(&mut connection).await.unwrap();
    for crash in 1..=3 {
        let worker = register(&mut connection).await.unwrap();
        let unanswered = claim(&mut connection, worker, 100).await.unwrap();
        assert_eq!(operate::give_back(&mut connection, &[unanswered.token]).await.unwrap(), 8);
        assert_eq!(
            db.count("select count(*) from queue.ready r join queue.lane l on l.lane = r.lane where l.solo").await,
            if crash == 1 { 0 } else { 8 }
        );
        assert_eq!(claim(&mut connection, worker, 100).await.unwrap().jobs.len(), jobs.len());
        sqlx::query("update queue.lease set claimed_at = now() - interval '40 days'").execute(&mut connection).await.unwrap();
        protocol::silence(&mut connection, worker).await.unwrap();
        assert_eq!(protocol::recover(&mut connection).await.unwrap(), 8);
        db.check_invariant().await;
        let table = if crash < 3 { "ready" } else { "dead" };
        let right = "select count(*) from queue.TABLE e join queue.job j on j.id = e.id
          join (select distinct lane, queue, job_type, priority, solo from queue.lane) l on l.lane = e.lane
          where l.solo and queue.lane_id(l.queue, l.job_type, l.priority, false) = j.lane";
        assert_eq!(db.count(&right.replace("TABLE", table)).await, 8, "after crash {crash}");
        assert_eq!(db.count("select count(*) from queue.lane where solo").await, 8, "each is written once");
    }
    assert_eq!(db.count("select count(*) from queue.failure where ran_ms = 2147483647").await, 24);
    db.finish().await;
}

#[tokio::test]
async fn a_workers_reports_change_no_other_worker() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    let (first, second) = (register(&mut connection).await.unwrap(), register(&mut connection).await.unwrap());
    let short = "update queue.worker set expires_at = now() + interval '10 seconds'";
    sqlx::query(short).execute(&mut connection).await.unwrap();
    assert!(protocol::beat(&mut connection, first).await.unwrap());
    assert_eq!(db.count("select count(*) from queue.worker where expires_at > now() + interval '20 seconds'").await, 1);
    for worker in [first, second, second] {
        operate::sleep(&mut connection, worker).await.unwrap();
    }
    assert_eq!(db.count("select count(*) from queue.idle").await, 2, "reported twice counts once");
    operate::wake_up(&mut connection, first).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.idle").await, 1);
    operate::sleep(&mut connection, first).await.unwrap();
    operate::retire(&mut connection, first).await.unwrap();
    let left: Vec<Uuid> = sqlx::query_scalar("select w.id from queue.worker w join queue.idle i on i.worker = w.id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, [second]);
    assert_eq!(db.count("select count(*) from queue.idle").await, 1);
    db.finish().await;
}

#[tokio::test]
async fn housekeeping_and_recovery_take_at_most_the_requested_number() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    while operate::drop_day(&mut connection).await.unwrap_or(true) {}
    let of = operate::ensure_lanes(&mut connection, &[("a", 100)]).await.unwrap();
    for at in 0..3 {
        let lease = leased(&mut connection, &[MIDNIGHT + 2 * at, MIDNIGHT + 2 * at + 1], &of).await;
        let verdicts = [lease.one(0, "complete"), lease.one(1, "plain")];
        assert_eq!(settle(&mut connection, &verdicts).await.unwrap(), []);
    }
    let prune = Store::default().sql(include_str!("../../queue-worker/sql/prune_done.sql"));
    for (most, pruned) in [(1_i64, 1), (10, 3), (10, 1), (10, 1)] {
        let done: i64 = sqlx::query_scalar(prune).bind(-86_400.0).bind(most).fetch_one(&mut connection).await.unwrap();
        assert_eq!(done, pruned);
    }
    enqueue(&mut connection, &["default"; 3]).await;
    for _ in 0..3 {
        let worker = register(&mut connection).await.unwrap();
        claim(&mut connection, worker, 1).await.unwrap();
        protocol::silence(&mut connection, worker).await.unwrap();
    }
    let silent = Store::default().sql(include_str!("../../queue-worker/sql/expired_leases.sql"));
    let found: Vec<Uuid> = sqlx::query_scalar(silent).bind(2_i64).fetch_all(&mut connection).await.unwrap();
    assert_eq!(found.len(), 2);
    db.finish().await;
}

#[tokio::test]
async fn of_two_verdicts_on_a_job_the_one_under_a_wrong_token_is_refused() {
    let db = TestDb::new().await;
    let mut connection = connect(&db).await;
    enqueue(&mut connection, &["default"; 2]).await;
    let worker = register(&mut connection).await.unwrap();
    let (mine, other) = (claim(&mut connection, worker, 1).await.unwrap(), claim(&mut connection, worker, 1).await.unwrap());
    let wrong = protocol::JobVerdict { token: other.token, ..mine.one(0, "dead") };
    assert_eq!(settle(&mut connection, &[wrong, mine.one(0, "retry")]).await.unwrap(), [(other.token, Some(mine.jobs[0].id))]);
    assert_eq!(db.count("select count(*) from queue.scheduled").await, 1);
    assert_eq!(db.count("select count(*) from queue.lease").await, 1, "what the other holds is still held");
    db.finish().await;
}
