//! Tests how jobs get their ordering keys, and how workers treat the keys.

use std::time::Duration;

use queue_core::{Batch, Context, Error, Handler, Job as _, JobRef, JobResult, JobState, job};
use serde::{Deserialize, Serialize};
use sqlx::Connection as _;
use tests::{Act, Do, Ordered, Own, RUNS, Sql as _, TestDb, Within, violations};

use super::{claim, enqueue, step};

/// Job type with the option `fifo`: all jobs of `fifo` types in a queue share one ordering key.
#[job(name = "keys_fifo", fifo)]
#[derive(Serialize, Deserialize)]
struct Fifo {
    n: u32,
}

impl Handler for Fifo {
    async fn run(self, cx: &Context) -> JobResult {
        let note = sqlx::query("insert into run (key, job, what) values (0, $1, 'done')").bind(cx.id());
        note.execute(cx.pool()).await?;
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn a_fifo_type_has_one_order_for_its_queue() {
    let db = TestDb::new().await;
    db.run(RUNS).await;
    assert_eq!(queue_core::JobType::ordering_key(&Fifo { n: 0 }).as_deref(), Some(""));
    let mut jobs = Vec::new();
    for n in 0..50 {
        jobs.push(Fifo { n }.enqueue(&db.pool).await.unwrap().id());
    }
    let elsewhere = Fifo { n: 50 }.enqueue(&db.pool).queue("other").await.unwrap().id();
    assert_eq!(db.state(elsewhere).await, Some(JobState::Ready), "another queue is another order");
    db.run_until_idle(db.worker().register::<Fifo>()).await;
    let ran: Vec<i64> =
        sqlx::query_scalar("select job from run where job <> $1 order by seq").bind(elsewhere).fetch_all(&db.pool).await.unwrap();
    assert_eq!(ran, jobs.iter().map(|job| job.0).collect::<Vec<_>>());
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_bulk_enqueue_keeps_the_given_order_within_each_key() {
    let db = TestDb::new().await;
    db.run(RUNS).await;
    let job = |n: u32| Ordered { key: n % 7, ms: 0, fails: 0, dies: false };
    let all = Ordered::enqueue_all((0..700).map(job), &db.pool).returning_ids().await.unwrap();
    let mut batch = Batch::new();
    for n in 0..70 {
        batch.add(job(n)).unwrap();
        batch.add(Do::ok()).unwrap();
    }
    let batched = batch.enqueue(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.blocked").await, 770);
    assert_eq!(db.count("select count(*) from queue.ready").await, 70, "those without a key");
    let mut committed: std::collections::BTreeMap<u32, Vec<_>> = std::collections::BTreeMap::new();
    let ids = all.iter().map(queue_core::JobHandle::id).chain(batched.iter().copied().step_by(2));
    for (n, id) in (0..700).chain(0..70_u32).zip(ids) {
        committed.entry(n % 7).or_default().push(id);
    }
    db.run_until_idle(db.worker().register::<Ordered>()).await;
    let (wrong, lines) = violations(&db.pool, &committed).await.unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(lines, 2 * 770);
    db.finish().await;
}

/// The second set begins with jobs without a key, so its insertion begins with COPY.
#[tokio::test]
#[ignore = "deep"]
async fn a_set_that_is_too_large_for_one_statement_keeps_its_order_too() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = (0..20_000).map(|_| Do::ok());
    let ids = Do::enqueue_all(jobs, &db.pool).key("all").returning_ids().await.unwrap();
    let order = "select array_agg(id order by seq) from queue.blocked";
    let places: Vec<i64> = c.one(order).await;
    assert_eq!(places, ids.iter().map(|job| job.id().0).collect::<Vec<_>>());
    assert_eq!(super::unblock(&mut c).await, 1);
    assert_eq!(claim(&mut c).await.ids(), [ids[0].id()]);
    c.run("truncate queue.blocked, queue.lease, queue.active_key, queue.key_hint, queue.job").await;

    // The job type is implemented by hand. The first ten thousand jobs have no key, and the remaining jobs have a key.
    let some = (0..20_000).map(|n| Sometimes { key: (n >= 10_000).then(|| format!("{}", n % 3)) });
    assert_eq!(Sometimes::enqueue_all(some, &db.pool).await.unwrap(), 20_000);
    assert_eq!(db.count("select count(*) from queue.ready").await, 10_000);
    assert_eq!(db.count("select count(*) from queue.blocked").await, 10_000);
    db.finish().await;
}

#[derive(Serialize, Deserialize)]
struct Sometimes {
    key: Option<String>,
}

impl queue_core::JobType for Sometimes {
    type Output = ();
    type Cx = queue_core::Context;
    const OPTIONS: queue_core::options::Options = queue_core::options::Options::new("sometimes");

    fn ordering_key(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.key.as_deref().map(Into::into)
    }
}

#[tokio::test]
async fn f22_a_key_of_a_mebibyte_is_hashed_and_one_with_nul_is_refused() {
    let (db, mut c) = TestDb::with_connection().await;
    let long = "k".repeat(1 << 20);
    let jobs = [enqueue(&mut c, &long).await, enqueue(&mut c, &long).await];
    let other = enqueue(&mut c, &format!("{long}.")).await;
    assert_eq!(step(&mut c, "complete").await, [jobs[0], other]);
    assert_eq!(step(&mut c, "complete").await, [jobs[1]]);
    let refused = Do::ok().enqueue(&mut c).key("a\0b").await.unwrap_err();
    assert!(matches!(refused, Error::OutOfRange { what: "the ordering key", .. }), "{refused}");
    let mut batch = Batch::new();
    batch.add(Do::ok()).unwrap().key("a\0b");
    assert!(matches!(batch.enqueue(&mut c).await, Err(Error::OneOfMany { index: 0, .. })));
    db.finish().await;
}

#[tokio::test]
async fn a_scheduled_head_blocks_its_key_until_its_time() {
    let db = TestDb::new().await;
    let later = |ms| Do::ok().enqueue(&db.pool).key("a").after(Duration::from_millis(ms));
    let jobs = [later(300).await.unwrap().id(), later(600).await.unwrap().id(), later(1).await.unwrap().id()];
    assert_eq!(db.state(jobs[0]).await, Some(JobState::Scheduled));
    assert_eq!(db.state(jobs[2]).await, Some(JobState::Blocked));
    db.run_until_idle(db.worker()).await;
    let ran: Vec<i64> = db.all("select job from effect order by at").await;
    assert_eq!(ran, jobs.map(|job| job.0));
    db.finish().await;
}

#[tokio::test]
async fn an_idle_worker_is_notified_of_a_key_that_continues() {
    let (db, mut c) = TestDb::with_connection().await;
    db.run_while(db.worker(), async {
        let first = enqueue(&mut c, "a").await;
        db.until(first, JobState::Completed).await;
        // Two jobs wait behind a job that is scheduled for an hour later and then cancelled.
        let head = Do::ok().enqueue(&mut c).key("a").after(Duration::from_hours(1)).await.unwrap().id();
        let (next, last) = (enqueue(&mut c, "a").await, enqueue(&mut c, "a").await);
        db.until_asleep().await;
        JobRef::from_id(head).cancel(&mut c).await.unwrap();
        db.until(next, JobState::Completed).await;
        db.until(last, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_key_that_a_dead_worker_settled_and_did_not_promote_is_promoted_by_the_next() {
    let (db, mut c) = TestDb::with_connection().await;
    let jobs = [enqueue(&mut c, "a").await, enqueue(&mut c, "a").await, enqueue(&mut c, "a").await];
    let lease = claim(&mut c).await;
    tests::protocol::settle(&mut c, &lease.all("complete")).await.unwrap();
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(jobs[2]).await, Some(JobState::Completed));
    db.finish().await;
}

#[tokio::test]
async fn transactions_of_handlers_release_their_key_too() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(Within { how: "ok".to_owned() }.enqueue(&db.pool).key("a").await.unwrap().id());
        jobs.push(Own { how: "ok".to_owned() }.enqueue(&db.pool).key("a").await.unwrap().id());
        jobs.push(
            Do { act: Act::First(Box::new(Act::Fail("once".to_owned())), Box::new(Act::Ok(String::new()))) }
                .enqueue(&db.pool)
                .key("a")
                .await
                .unwrap()
                .id(),
        );
    }
    db.run_until_idle(db.worker().register::<Within>().register::<Own>()).await;
    let ran: Vec<i64> = db.all("select job from effect group by job order by min(at)").await;
    assert_eq!(ran, jobs.iter().map(|job| job.0).collect::<Vec<_>>());
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_hundred_thousand_blocked_jobs_in_front_cost_a_claim_nothing() {
    let (db, mut c) = TestDb::with_connection().await;
    enqueue(&mut c, "stuck").await;
    assert_eq!(step(&mut c, "dead").await.len(), 1);
    let all = (0..100_000).map(|_| Do::ok());
    Do::enqueue_all(all, &db.pool).key("stuck").await.unwrap();
    assert_eq!(super::unblock(&mut c).await, 0);
    let behind = [enqueue(&mut c, "free").await, enqueue(&mut c, "free").await];
    let mut tx = c.begin().await.unwrap();
    let plan = "explain (analyze, buffers, format json)
      select lane, seq, id from queue.ready where lane = (select lane from queue.ready limit 1) and seq >= 0 order by seq limit 10 for update skip locked";
    let plan: serde_json::Value = tx.one(plan).await;
    let buffers = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap() + plan[0]["Plan"]["Shared Read Blocks"].as_i64().unwrap();
    assert!(buffers < 20, "{buffers} buffers: {plan}");
    tx.rollback().await.unwrap();
    assert_eq!(step(&mut c, "complete").await, [behind[0]]);
    assert_eq!(step(&mut c, "complete").await, [behind[1]]);
    db.finish().await;
}
