//! What waits behind jobs that have no room comes to its turn: behind many that stand in no line yet, behind the other kind of a type's jobs, and
//! behind those of its own lease.

use std::time::{Duration, Instant};

use queue_core::{BatchContext, BatchHandler, Context, Handler, Job as _, JobBatch, JobResult, JobState, Limit, Store, job, operate};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::Executor as _;
use tests::{
    TestDb, eventually, lines,
    protocol::{Said, settle},
    within,
};

use super::{
    fresh,
    key_claims::{claim_from, counts, fill},
    set, span,
    statements::{run, with},
    worker,
};

/// More than a claim looks through, or are brought into lines at a time.
const MANY: u32 = 8000;

/// Goes on until there is a table `go`, if it says so.
#[job(name = "limits_waits", send_only, max_attempts = 20)]
#[derive(Serialize, Deserialize)]
pub(super) struct Waits {
    pub(super) until_go: bool,
}

impl Handler for Waits {
    async fn run(self, cx: &Context) -> JobResult {
        let goes = async || sqlx::query_scalar::<_, bool>("select to_regclass('go') is not null").fetch_one(cx.pool()).await;
        let begun = "insert into effect_span (job, job_type) values ($1, 'waits') returning n";
        let n: i64 = sqlx::query_scalar(begun).bind(cx.id()).fetch_one(cx.pool()).await?;
        while self.until_go && !goes().await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sqlx::query("update effect_span set ended = clock_timestamp() where n = $1").bind(n).execute(cx.pool()).await?;
        Ok(())
    }
}

/// A worker of these.
pub(super) fn waiting(db: &TestDb) -> Worker {
    worker(db).register::<Waits>()
}

/// As by a promotion, or by an enqueue of an earlier release: those of one key, and then one of another.
const OUTSIDE_OF_LINES: &str = "with taken as (delete from queue.ready returning id, lane)
    insert into queue.ready (lane, seq, id) select queue.twin_of(lane), queue.next_id(), id from taken order by id";

#[tokio::test]
#[ignore = "deep"]
async fn what_stands_behind_many_others_outside_of_lines_is_brought_in_at_once() {
    let db = fresh().await;
    set(&db, "type:limits_waits", Limit::new().concurrency(1).keyed()).await;
    db.run_while(waiting(&db), async {
        Waits { until_go: true }.enqueue(&db.pool).fair("a").await.unwrap();
        eventually("it runs", async || db.count("select count(*) from effect_span").await == 1).await;
        let mut tx = db.pool.begin().await.unwrap();
        Waits::enqueue_all((0..MANY).map(|_| Waits { until_go: false }), &mut tx).fair("a").await.unwrap();
        let last = Waits { until_go: false }.enqueue(&mut tx).fair("b").await.unwrap().id();
        tx.execute(OUTSIDE_OF_LINES).await.unwrap();
        tx.execute("select queue.wake('default')").await.unwrap();
        tx.commit().await.unwrap();
        let asked = Instant::now();
        db.until(last, JobState::Completed).await;
        eprintln!("the one behind {MANY} others began after {:?}", asked.elapsed());
        // 500 a second are brought in if each look waits for the next.
        assert!(asked.elapsed() < Duration::from_secs(12), "it waited for {:?}", asked.elapsed());
    })
    .await;
    db.finish().await;
}

/// Takes batches, under a limit by key.
#[job(name = "limits_mixed_together", send_only, batch = 10, limit(name = "mixed", key = self.key, concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct MixedTogether {
    key: u32,
}

/// By itself, under the limit of the batches.
#[job(name = "limits_mixed_alone", send_only, limit(name = "mixed", key = self.key))]
#[derive(Serialize, Deserialize)]
struct MixedAlone {
    key: u32,
}

impl BatchHandler for MixedTogether {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

impl Handler for MixedAlone {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 0).await
    }
}

/// A database in which one key alone may run, and a worker of both kinds.
async fn with_one_open_key() -> (TestDb, Worker) {
    let db = fresh().await;
    set(&db, "mixed", Limit::new().concurrency(0).keyed()).await;
    operate::set_limit_key(&db.pool, Store::default(), "mixed", "0", Some(1)).await.unwrap();
    let worker = worker(&db).register_batch::<MixedTogether>().register::<MixedAlone>();
    (db, worker)
}

#[tokio::test]
async fn batches_of_many_keys_without_room_keep_no_single_job_under_their_limit_waiting() {
    let (db, worker) = with_one_open_key().await;
    MixedTogether::enqueue_all((1..=MANY).map(|key| MixedTogether { key }), &db.pool).priority(200).await.unwrap();
    db.run_while(worker, async {
        let job = MixedAlone { key: 0 }.enqueue(&db.pool).await.unwrap().id();
        within(Duration::from_secs(15), "it has run", async || db.state(job).await == Some(JobState::Completed)).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn single_jobs_of_many_keys_without_room_keep_no_batch_under_their_limit_waiting() {
    let (db, worker) = with_one_open_key().await;
    MixedAlone::enqueue_all((1..=MANY).map(|key| MixedAlone { key }), &db.pool).priority(200).await.unwrap();
    db.run_while(worker, async {
        let job = MixedTogether { key: 0 }.enqueue(&db.pool).await.unwrap().id();
        within(Duration::from_secs(15), "it has run", async || db.state(job).await == Some(JobState::Completed)).await;
    })
    .await;
    db.finish().await;
}

/// Claimed with others that the limit does not cover, before there was any.
#[tokio::test]
async fn jobs_of_a_lease_that_was_adopted_give_back_the_permit_of_their_key_one_by_one() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "other", ["a", "a"]).await;
    fill(&mut on, "default", ["b", "b", "b"]).await;
    let lease = lines::claim_lines(&mut on, worker, i64::MIN, 9).await.unwrap().lease;
    fill(&mut on, "other", ["a"; 5]).await;
    run(&mut on, "select queue.set_limit('queue:other', 2, keyed => true)").await;
    run(&mut on, "update queue.worker set paused_seen = 9223372036854775807").await;
    let other = (worker, "other", i64::MIN);
    let full = claim_from(&mut on, other, &["queue:other"], 9, &[lease.token]).await.unwrap();
    assert_eq!((lease.jobs.len(), full.ids.len()), (5, 0), "two of the five hold all there is of the key");
    let of_key = "select array(select id from queue.job where payload ->> 'k' = $1 order by id)";
    let of = async |key: &str| sqlx::query_scalar::<_, Vec<i64>>(of_key).bind(key).fetch_one(&db.pool).await.unwrap();
    let (limited, free) = (of("a").await, of("b").await);
    for (ended, room) in [(limited[0], 1), (free[0], 0), (limited[1], 1), (free[1], 0)] {
        let job = *lease.jobs.iter().find(|job| job.id.0 == ended).unwrap();
        let refused = settle(&mut on, &[Said { token: lease.token, job, verdict: "complete" }]).await.unwrap();
        assert_eq!(refused, []);
        let next = claim_from(&mut on, other, &["queue:other"], 9, &[lease.token]).await.unwrap();
        assert_eq!(next.of, if room > 0 { counts([("a", room)]) } else { counts([]) }, "after the end of {ended}");
    }
    db.finish().await;
}
