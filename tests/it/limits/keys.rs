//! Tests per-key limits. A key never exceeds its limit, regardless of the load on other keys. Jobs that wait for a permit of one key do
//! not delay the jobs of other keys.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job as _, JobResult, JobState, Queue, job, options::Limit};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use tests::{Act, Do, Sql as _, TestDb, within};

use super::{BEGUN, UNTIL_GO, begun, fresh, held_equals_the_leases, most_at_once, rates::RatedByKey, set, span_of};

/// First of two job types that share a limit per account.
#[job(limit(name = "account", key = self.account, concurrency = 2), backoff = fixed("20ms"), max_attempts = 20)]
#[derive(Serialize, Deserialize)]
pub(super) struct OfAccount {
    pub(super) account: u32,
    pub(super) ms: u64,
    /// Number of times that the job fails, is snoozed or panics before it succeeds.
    pub(super) fails: u32,
}

/// Second of two job types that share a limit per account. If `left` is positive, the job first enqueues a successor of its own type.
#[job(limit(name = "account", key = self.of))]
#[derive(Serialize, Deserialize)]
struct AlsoOfAccount {
    of: u32,
    left: u32,
}

impl Handler for OfAccount {
    async fn run(self, cx: &Context) -> JobResult {
        span_of(cx, &format!("account {}", self.account), self.ms).await?;
        let tries: i64 = sqlx::query_scalar("select count(*) from effect_span where job = $1").bind(cx.id()).fetch_one(cx.pool()).await?;
        match (tries > i64::from(self.fails), tries % 3) {
            (true, _) => Ok(()),
            (false, 0) => Err(Failure::snooze(Duration::from_millis(20))),
            (false, 1) => Err(Failure::retry_in(Duration::from_millis(10), "again")),
            (false, _) => panic!("in the middle of it"),
        }
    }
}

impl Handler for AlsoOfAccount {
    async fn run(self, cx: &Context) -> JobResult {
        if self.left > 0 {
            Self { left: self.left - 1, ..self }.enqueue(cx.pool()).await?;
        }
        span_of(cx, &format!("account {}", self.of), 5).await
    }
}

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<OfAccount>().register::<AlsoOfAccount>()
}

#[tokio::test]
#[ignore = "deep"]
async fn no_more_of_a_key_run_concurrently_than_the_limit_and_each_attempt_begins_once() {
    let db = fresh().await;
    for n in 0..60 {
        OfAccount { account: n % 5, ms: 20, fails: n % 4 }.enqueue(&db.pool).await.unwrap();
        AlsoOfAccount { of: n % 5, left: 0 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db), worker(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    for account in 0..5 {
        let most = most_at_once(&db, &format!("job_type = 'account {account}'")).await;
        assert!(most <= 2, "{most} of account {account}");
    }
    assert_eq!(db.count("select count(*) from queue.jobs where state = 'completed'").await, 120);
    assert_eq!(db.count(BEGUN).await, 60 + 15 * (1 + 2 + 3 + 4), "each attempt once");
    held_equals_the_leases(&db).await;
    db.finish().await;
}

/// The jobs of account 2 run one after the other. If each job waited for a second, the test would time out.
#[tokio::test]
#[ignore = "deep"]
async fn a_key_whose_jobs_hang_delays_no_other_and_an_operator_can_raise_its_limit() {
    let db = fresh().await;
    db.run_while(worker(&db), async {
        for _ in 0..40 {
            OfAccount { account: 1, ms: UNTIL_GO, fails: 0 }.enqueue(&db.pool).await.unwrap();
        }
        let running = begun("job_type = 'account 1'");
        db.until_count(&running, 2).await;
        AlsoOfAccount { of: 2, left: 99 }.enqueue(&db.pool).await.unwrap();
        db.until_count(&begun("job_type = 'account 2'"), 100).await;
        for (concurrency, run) in [(Some(5), 5), (Some(1), 5), (None, 5), (Some(7), 7)] {
            Queue::new(&db.pool).set_limit_key("account", "1", concurrency).await.unwrap();
            db.until_count(&running, run).await;
        }
        let keys = Queue::new(&db.pool).limit_keys("account").await.unwrap();
        let first = &keys[0];
        assert_eq!((first.key.as_deref(), first.concurrency, first.used, first.waiting), (Some("1"), Some(7), 7, 33), "{keys:?}");
        let all = Queue::new(&db.pool).limits().await.unwrap();
        assert!(all.iter().any(|limit| limit.name == "account" && limit.keyed && limit.used == 7), "{all:?}");
        db.run("create table go ()").await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_with_a_bound_is_shown_while_nothing_waits() {
    let db = TestDb::new().await;
    Queue::new(&db.pool).set_limit_key("account", "1", Some(3)).await.unwrap();
    let keys = Queue::new(&db.pool).limit_keys("account").await.unwrap();
    let shown: Vec<_> = keys.iter().map(|key| (key.key.as_deref(), key.concurrency, key.used, key.waiting, key.partial)).collect();
    assert_eq!(shown, [(Some("1"), Some(3), 0, 0, false)]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_key_with_permits_is_found_behind_a_hundred_thousand_without_and_so_are_new_ones() {
    let db = fresh().await;
    set(&db, "type:rated_by_key", Limit::new().rate(1, Duration::from_hours(1)).keyed()).await;
    RatedByKey { key: "first".into() }.enqueue(&db.pool).await.unwrap();
    let begun = "with lane as (select queue.lane_id('default', 'rated_by_key', 100, false) as lane),
        fresh as materialized (select queue.next_id() as id, 'k' || n as key, queue.fair_id_of('k' || n) as fair_id from generate_series(1, 100000) n),
        jobs as (insert into queue.job (id, lane, max_attempts, payload, fair_id)
          select id, lane, 3, jsonb_build_object('key', key), fair_id from fresh cross join lane),
        rates as (insert into queue.rate (limit_id, fair_id, at_ms, n, total)
          select queue.hash('type:rated_by_key'), fair_id, queue.clock_ms(), 1, 1 from fresh)
        insert into queue.ready (lane, seq, id, fair_id) select queue.paired_lane(lane), queue.next_id(), id, fair_id from fresh cross join lane";
    db.run(begun).await;
    db.run_while(worker(&db).register::<RatedByKey>(), async {
        for n in 1..10 {
            within(Duration::from_mins(2), "it runs", async || db.count(BEGUN).await == n).await;
            RatedByKey { key: format!("new {n}") }.enqueue(&db.pool).await.unwrap();
        }
        db.until_count(BEGUN, 10).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn quarantined_jobs_whose_key_has_permits_are_tried_and_those_of_a_key_without_wait() {
    let db = TestDb::new().await;
    set(&db, "type:do", Limit::new().concurrency(1).keyed()).await;
    db.run_while(db.worker(), async {
        Do { act: Act::Hang }.enqueue(&db.pool).fair("a").await.unwrap();
        db.until_count("select count(*) from effect", 1).await;
        let (mut tx, mut ids) = (db.pool.begin().await.unwrap(), Vec::new());
        for key in ["a", "a", "b", "a"] {
            ids.push(Do::ok().enqueue(&mut tx).fair(key).await.unwrap().id());
        }
        let suspected = "with taken as (delete from queue.ready returning id, seq)
            insert into queue.ready (lane, seq, id, crashes)
            select queue.ensure_lane('default', 'do', 100::smallint, true), queue.next_id(), id, 1 from taken order by seq";
        tx.run(suspected).await;
        tx.run("select queue.wake('default')").await;
        tx.commit().await.unwrap();
        db.until(ids[2], JobState::Completed).await;
        for n in [0, 1, 3] {
            assert_eq!(db.state(ids[n]).await, Some(JobState::Ready), "its key has no room");
        }
        Queue::new(&db.pool).set_limit_key("type:do", "a", Some(4)).await.unwrap();
        for n in [0, 1, 3] {
            db.until(ids[n], JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}
