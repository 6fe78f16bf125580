//! Tests every kind of job in a Citus cluster. In each round, jobs are enqueued through one node and run by a worker that is connected to
//! another node.

use std::time::{Duration, Instant};

use queue_core::{
    Context, Failure, Handler, Job as _, JobHandle, JobResult, JobState, Queue, Store,
    durable::Durable,
    flow::{Flow, NodeOutput},
    job,
    operate::{self, Filter, Operation},
    runner::locate,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::{Act as Does, Batched, Do, Part, TestDb, Within, within};

use super::{cluster, pool};

/// Job that returns its payload.
#[job(name = "echo", output = i64)]
#[derive(Serialize, Deserialize)]
pub(super) struct Echo {
    pub(super) n: i64,
}

impl Handler for Echo {
    async fn run(self, _: &Context) -> JobResult<i64> {
        Ok(self.n)
    }
}

/// Job with an ordering key and a fairness key.
#[job(name = "paired", key = self.key, fair = self.key)]
#[derive(Serialize, Deserialize)]
struct Lined {
    key: String,
}

impl Handler for Lined {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Job under a concurrency limit and a rate limit.
#[job(name = "limited", limit(concurrency = 2, rate = "100/1s"))]
#[derive(Serialize, Deserialize)]
struct Limited {}

impl Handler for Limited {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Job with a concurrency limit of one per account.
#[job(name = "limited_by_key", limit(name = "account", key = self.account, concurrency = 1))]
#[derive(Serialize, Deserialize)]
struct ByKey {
    account: String,
}

impl Handler for ByKey {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Durable job that uses a step, a step transaction, a child, a map, a signal and a sleep.
#[job(name = "long", durable, output = i64)]
#[derive(Serialize, Deserialize)]
struct Long {}

impl Handler for Long {
    async fn run(self, cx: &Durable) -> JobResult<i64> {
        let one = cx.step("one", async { Ok::<_, Failure>(1_i64) }).await?;
        let job = cx.id();
        let two: i64 = cx
            .step_tx("two", async |tx| {
                sqlx::query("insert into effect (job, attempt, pid) values ($1, 2, 0)").bind(job).execute(&mut *tx).await.map(|_| 2)
            })
            .await?;
        let child = cx.spawn("child", Echo { n: 4 }).await?;
        let parts = cx.map("parts", (0..5).map(|n| Echo { n })).in_flight(2).await?;
        let eight = cx.receive::<i64>("eight").await;
        cx.sleep("nap", Duration::from_millis(50)).await;
        let ended = parts.join().await?;
        Ok(one + two + child.join().await? + eight + i64::try_from(ended.completed)? * 100)
    }
}

/// Flow node that depends on another node.
#[job(name = "sum", output = i64)]
#[derive(Serialize, Deserialize)]
struct Sum {
    of: NodeOutput<i64>,
}

impl Handler for Sum {
    async fn run(self, _: &Context) -> JobResult<i64> {
        Ok(self.of.into_value()? + 1)
    }
}

/// Job that completes in its own transaction.
#[job(name = "own_end")]
#[derive(Serialize, Deserialize)]
struct OwnEnd {}

impl Handler for OwnEnd {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.begin().await?;
        sqlx::query("insert into effect (job, attempt, pid) values ($1, 7, 0)").bind(cx.id()).execute(&mut *tx).await?;
        Echo { n: 77 }.enqueue(&mut *tx).await?;
        tx.complete(()).await
    }
}

/// Job whose type declares a schedule.
#[job(name = "ticking", every = "1s")]
#[derive(Default, Serialize, Deserialize)]
struct Ticking {}

impl Handler for Ticking {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

pub(super) fn worker(pool: &PgPool) -> Worker {
    Worker::new(pool.clone())
        .register::<Echo>()
        .register::<Do>()
        .register::<Lined>()
        .register::<Limited>()
        .register::<ByKey>()
        .register::<Long>()
        .register::<Sum>()
        .register::<OwnEnd>()
        .register::<Ticking>()
        .register::<Within>()
        .register_batch::<Batched>()
        .lease_ttl(Duration::from_secs(5))
        .grace(Duration::from_secs(2))
}

async fn wait_until_finished(db: &TestDb, what: &str) {
    within(Duration::from_mins(1), what, async || {
        db.count(
            "select count(*) from queue.jobs where state not in ('completed', 'dead', 'cancelled', 'expired') and job_type <> 'ticking'",
        )
        .await
            == 0
    })
    .await;
}

/// Enqueues jobs of all kinds through `pool` while a worker is running, and checks their results.
async fn play(db: &TestDb, pool: &PgPool, queue: &Queue, round: &str) {
    let began = Instant::now();
    let log = |what: &str| eprintln!("{round}: {what}: after {:?}", began.elapsed());
    for n in 0..3 {
        assert_eq!(Echo { n }.enqueue(pool).await.unwrap().wait(queue).await.unwrap(), n);
    }
    log("plain");
    let retried = Do { act: Does::FailUntil(2) }.enqueue(pool).await.unwrap();
    assert_eq!(retried.wait(queue).await.unwrap(), "");
    let dead = Do { act: Does::Terminal("so".to_owned()) }.enqueue(pool).await.unwrap();
    assert!(dead.wait(queue).await.is_err());
    let later = Echo { n: 9 }.enqueue(pool).after(Duration::from_millis(300)).await.unwrap();
    assert_eq!(later.wait(queue).await.unwrap(), 9);
    log("retried, dead, scheduled");
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("insert into effect (job, attempt, pid) values (1, 1, 1)").execute(&mut *tx).await.unwrap();
    let rolled = Echo { n: 1 }.enqueue(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(rolled.wait(queue).await.is_err(), "it was never enqueued");
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("insert into effect (job, attempt, pid) values (1, 1, 1)").execute(&mut *tx).await.unwrap();
    let one = Echo { n: 1 }.enqueue(&mut *tx).unique(format!("{round} one")).await.unwrap();
    let same = Echo { n: 1 }.enqueue(&mut *tx).unique(format!("{round} one")).await.unwrap();
    assert_eq!(one.id(), same.id());
    let all = Echo::enqueue_all((0..50).map(|n| Echo { n }), &mut *tx).returning_ids().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(one.wait(queue).await.unwrap(), 1);
    for (n, handle) in all.into_iter().enumerate() {
        assert_eq!(handle.wait(queue).await.unwrap(), i64::try_from(n).unwrap());
    }
    log("in a transaction, unique, many");
    Echo::enqueue_all((0..6000).map(|n| Echo { n }), pool).await.unwrap();
    for nr in 0..12 {
        Lined { key: format!("key {}", nr % 3) }.enqueue(pool).await.unwrap();
        Limited {}.enqueue(pool).await.unwrap();
        ByKey { account: format!("{}", nr % 2) }.enqueue(pool).await.unwrap();
        Batched { part: Part::Complete }.enqueue(pool).await.unwrap();
    }
    wait_until_finished(db, "keys, lines, limits, batches").await;
    log("bulk, keyed, fair, limited, batches");
    let tx_job = Within { how: "ok".to_owned() }.enqueue(pool).await.unwrap();
    drop(tx_job.wait(queue).await.unwrap());
    OwnEnd {}.enqueue(pool).await.unwrap().wait(queue).await.unwrap();
    log("transactional, ended in its own transaction");
    let long: JobHandle<Long> = Long {}.enqueue(pool).await.unwrap();
    within(Duration::from_secs(20), "the job waits for a signal", async || db.state(long.id()).await == Some(JobState::Parked)).await;
    let _ = long.job_ref().signal(pool, "eight", &8_i64).await.unwrap();
    assert_eq!(long.wait(queue).await.unwrap(), 1 + 2 + 4 + 8 + 500);
    log("durable, child, map, signal");
    operated(db, pool, queue, (round, &dead, &long)).await;
    log("flow, paused, cancelled, requeued, discarded");
    let fresh = format!("new_{}", round.replace(' ', "_"));
    Echo { n: 3 }.enqueue(pool).queue(fresh.as_str()).await.unwrap().wait(queue).await.unwrap();
    wait_until_finished(db, "all of it").await;
}

/// Runs a flow. Then pauses and resumes a queue, and cancels, requeues, discards and diagnoses jobs.
async fn operated(db: &TestDb, pool: &PgPool, queue: &Queue, (round, dead, long): (&str, &JobHandle<Do>, &JobHandle<Long>)) {
    let mut flow = Flow::new(format!("{round} flow"));
    let first = flow.add("first", Echo { n: 41 });
    let last = flow.add("last", Sum { of: first.output() });
    let flow = flow.enqueue(pool).await.unwrap();
    assert_eq!(flow.job(&last).wait(queue).await.unwrap(), 42);
    let slow = operate::Scope::queue("slow");
    Queue::new(pool).pause_with_reason(&slow, Some("for a test")).await.unwrap();
    within(Duration::from_secs(10), "workers know of the pause", async || {
        Queue::new(pool).pause_awaits(&slow).await.unwrap().is_some_and(|awaited| awaited.is_empty())
    })
    .await;
    let paused = Echo { n: 5 }.enqueue(pool).queue("slow").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(db.state(paused.id()).await, Some(JobState::Ready));
    Queue::new(pool).resume(&slow).await.unwrap();
    assert_eq!(paused.wait(queue).await.unwrap(), 5);
    let cancelled = Echo { n: 5 }.enqueue(pool).after(Duration::from_hours(1)).await.unwrap();
    cancelled.job_ref().cancel(pool).await.unwrap();
    dead.job_ref().requeue(pool).await.unwrap();
    assert!(dead.wait(queue).await.is_err());
    let dead = Filter { state: Some(JobState::Dead), ..Filter::default() };
    Queue::new(pool).jobs().matching(&dead).apply(Operation::Discard).await.unwrap();
    Queue::new(pool).job(long.id()).why().await.unwrap();
}

/// Returns the median time from an enqueue until a waiting caller has the job's output.
async fn median_wait(pool: &PgPool, queue: &Queue) -> Duration {
    let mut all = Vec::new();
    for n in 0..40 {
        let began = Instant::now();
        Echo { n }.enqueue(pool).await.unwrap().wait(queue).await.unwrap();
        all.push(began.elapsed());
    }
    all.sort();
    all[20]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_job_runs_over_every_node() {
    let Some(db) = cluster("every kind of job over every node").await else { return };
    let owner = locate(&mut db.pool.acquire().await.unwrap(), Store::default()).await.unwrap().unwrap();
    for (nr, url) in db.urls().into_iter().enumerate() {
        let given = pool(&url);
        // The worker and the producer are connected to different nodes.
        let own = pool(&db.urls()[(nr + 1) % 3]);
        let queue = Queue::new(&own);
        db.run_while(worker(&given), async {
            play(&db, &own, &queue, &format!("round {nr}")).await;
            let median = median_wait(&own, &queue).await;
            let is_owner = db.urls()[(nr + 1) % 3].contains(&format!(":{}/", owner.node.port()));
            eprintln!("is the store's own node: {is_owner}");
            eprintln!("worker at node {nr}, producer at the next: half of all waits take {median:?} at most");
            assert!(median < Duration::from_millis(250), "{median:?}");
        })
        .await;
        given.close().await;
        drop(queue);
        own.close().await;
    }
    db.finish().await;
}
