//! Tests that a job gets its turn even if jobs without permits precede it. The preceding jobs are outside of the fair queue, are of the
//! other kind (single or batch), or are in the same lease.

use queue_core::{
    Context, Handler, Job as _, JobResult, JobState, Queue,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
    options::Limit,
};
use serde::{Deserialize, Serialize};
use tests::{
    Sql as _, fair_queues,
    protocol::{JobVerdict, settle},
};

use super::{
    BEGUN, UNTIL_GO, Unlimited,
    claim_steps::{claim_from, counts, fill, knows, with},
    fresh, set, span, worker,
};

/// Number of jobs that exceeds both the scan limit of a claim and the number of jobs that one pass moves into the fair queue.
const MANY: u32 = 8000;

/// Statement that moves all jobs out of the fair queue, into the lanes where a promotion, or an enqueue by an earlier release, leaves them.
const OUTSIDE_OF_FAIR_QUEUES: &str = "with taken as (delete from queue.ready returning id, lane)
    insert into queue.ready (lane, seq, id) select queue.paired_lane(lane), queue.next_id(), id from taken order by id";

/// The last job has the key `b`, and is preceded by more jobs of the key `a` than one pass moves into the fair queue. The last job
/// nevertheless gets its turn while a job of the key `a` is running.
#[tokio::test]
#[ignore = "deep"]
async fn a_job_behind_many_others_outside_of_fair_queues_is_moved_in() {
    let db = fresh().await;
    set(&db, "type:unlimited", Limit::new().concurrency(1).keyed()).await;
    db.run_while(worker(&db), async {
        Unlimited { ms: UNTIL_GO }.enqueue(&db.pool).fair("a").await.unwrap();
        db.until_count(BEGUN, 1).await;
        let mut tx = db.pool.begin().await.unwrap();
        Unlimited::enqueue_all((0..MANY).map(|_| Unlimited { ms: 0 }), &mut tx).fair("a").await.unwrap();
        let last = Unlimited { ms: 0 }.enqueue(&mut tx).fair("b").await.unwrap().id();
        tx.run(OUTSIDE_OF_FAIR_QUEUES).await;
        tx.run("select queue.wake('default')").await;
        tx.commit().await.unwrap();
        db.until(last, JobState::Completed).await;
        assert_eq!(db.count(BEGUN).await, 2, "none of the others has room");
    })
    .await;
    db.finish().await;
}

/// Batch type under a per-key limit.
#[job(name = "limits_mixed_together", send_only, batch = 10, limit(name = "mixed", key = self.key, concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct MixedTogether {
    key: u32,
}

/// Job type without batches, under the limit of `MixedTogether`.
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

/// The jobs without a permit are either all batch jobs or all single jobs.
#[tokio::test]
async fn jobs_of_many_keys_without_permits_delay_no_other_kind_under_their_limit() {
    for together in [true, false] {
        let db = fresh().await;
        set(&db, "mixed", Limit::new().concurrency(0).keyed()).await;
        Queue::new(&db.pool).set_limit_key("mixed", "0", Some(1)).await.unwrap();
        if together {
            MixedTogether::enqueue_all((1..=MANY).map(|key| MixedTogether { key }), &db.pool).priority(200).await.unwrap();
        } else {
            MixedAlone::enqueue_all((1..=MANY).map(|key| MixedAlone { key }), &db.pool).priority(200).await.unwrap();
        }
        db.run_while(worker(&db).register_batch::<MixedTogether>().register::<MixedAlone>(), async {
            let job = if together {
                MixedAlone { key: 0 }.enqueue(&db.pool).await.unwrap().id()
            } else {
                MixedTogether { key: 0 }.enqueue(&db.pool).await.unwrap().id()
            };
            db.until(job, JobState::Completed).await;
        })
        .await;
        db.finish().await;
    }
}

/// The lease is older than the limit, and also contains jobs that the limit does not cover.
#[tokio::test]
async fn jobs_of_an_adopted_lease_release_the_permit_of_their_key_one_by_one() {
    let (db, mut on, worker) = with(0).await;
    fill(&mut on, "other", ["a", "a"]).await;
    fill(&mut on, "default", ["b", "b", "b"]).await;
    let lease = fair_queues::claim_fair(&mut on, worker, i64::MIN, 9).await.unwrap().lease;
    fill(&mut on, "other", ["a"; 5]).await;
    on.run("select queue.set_limit('queue:other', 2, keyed => true)").await;
    knows(&mut on, worker).await;
    let other = (worker, "other", i64::MIN);
    let full = claim_from(&mut on, other, &["queue:other"], 9, &[lease.token]).await.unwrap();
    assert_eq!((lease.jobs.len(), full.ids.len()), (5, 0), "two of the five hold all there is of the key");
    let of = async |key| db.all::<i64>(&format!("select id from queue.job where payload ->> 'k' = '{key}' order by id")).await;
    let (limited, free) = (of("a").await, of("b").await);
    for (ended, room) in [(limited[0], 1), (free[0], 0), (limited[1], 1), (free[1], 0)] {
        let job = *lease.jobs.iter().find(|job| job.id.0 == ended).unwrap();
        let refused = settle(&mut on, &[JobVerdict { token: lease.token, job, verdict: "complete" }]).await.unwrap();
        assert_eq!(refused, []);
        let next = claim_from(&mut on, other, &["queue:other"], 9, &[lease.token]).await.unwrap();
        assert_eq!(next.of, if room > 0 { counts([("a", room)]) } else { counts([]) }, "after the end of {ended}");
    }
    db.finish().await;
}
