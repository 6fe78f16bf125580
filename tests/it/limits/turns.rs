//! Who goes first: lanes under limits beside lanes without any, lanes under one limit, and limits beside each other.

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobResult, JobState, Limit, Priority, job};
use queue_worker::{Config, Worker};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually};

use super::{Limited, SharedOne, Unlimited, fresh, set, span, worker};

/// With so many slots.
pub(super) fn narrow(db: &TestDb, slots: usize) -> Worker {
    let mut config = Config::default();
    (config.concurrency, config.batch) = (slots, 2);
    Worker::new(db.pool.clone()).config(config).register::<Limited>().register::<SharedOne>().register::<Unlimited>().register::<Once>()
}

async fn ended(db: &TestDb) -> i64 {
    db.count("select count(*) from effect_span where ended is not null").await
}

/// How many of this type are among the first ones.
async fn among(db: &TestDb, first: i64, job_type: &str) -> i64 {
    db.count(&format!("select count(*) from (select job_type from effect_span order by n limit {first}) s where job_type = '{job_type}'"))
        .await
}

#[tokio::test]
async fn jobs_of_a_higher_priority_without_a_limit_go_before_those_that_a_limit_has_room_for() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Limited::enqueue_all((0..60).map(|_| Limited { ms: 30 }), &db.pool).await.unwrap();
    db.run_while(narrow(&db, 1), async {
        eventually("some have run", async || ended(&db).await >= 3).await;
        for _ in 0..3 {
            let free = Unlimited { ms: 0 }.enqueue(&db.pool).priority(200).await.unwrap().id();
            let before = ended(&db).await;
            db.until(free, JobState::Completed).await;
            let begun =
                format!("select count(*) from effect_span where n < (select n from effect_span where job = {free}) and n > {before}");
            let between = db.count(&begun).await;
            assert!(between <= 12, "{between} of the limited began before it");
        }
        assert!(db.count("select count(*) from queue.ready").await > 20, "they were waiting all the time");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn of_equal_priority_jobs_with_a_limit_and_without_one_take_turns() {
    for slots in [1, 3] {
        let db = fresh().await;
        set(&db, "type:limited", Limit::new().concurrency(50)).await;
        // They take longer than a claim: both kinds wait all the time.
        Limited::enqueue_all((0..40).map(|_| Limited { ms: 30 }), &db.pool).await.unwrap();
        Unlimited::enqueue_all((0..40).map(|_| Unlimited { ms: 30 }), &db.pool).await.unwrap();
        db.run_while(narrow(&db, slots), eventually("all have run", async || ended(&db).await == 80)).await;
        let order = "select string_agg(upper(left(job_type, 1)), '' order by n) from effect_span";
        let order: String = sqlx::query_scalar(order).fetch_one(&db.pool).await.unwrap();
        let (limited, free) = (among(&db, 50, "limited").await, among(&db, 50, "unlimited").await);
        eprintln!("with {slots} slots: {limited} with a limit, {free} without: {order}");
        assert!(limited.min(free) >= 15, "with {slots} slots: {order}");
        db.finish().await;
    }
}

#[tokio::test]
async fn jobs_of_a_higher_priority_under_a_limit_go_before_those_without_one() {
    let db = fresh().await;
    Unlimited::enqueue_all((0..600).map(|_| Unlimited { ms: 30 }), &db.pool).await.unwrap();
    db.run_while(narrow(&db, 1), async {
        eventually("some have run", async || ended(&db).await >= 3).await;
        for _ in 0..3 {
            let urgent = Limited { ms: 0 }.enqueue(&db.pool).priority(200).await.unwrap().id();
            let before = ended(&db).await;
            db.until(urgent, JobState::Completed).await;
            let begun =
                format!("select count(*) from effect_span where n < (select n from effect_span where job = {urgent}) and n > {before}");
            let between = db.count(&begun).await;
            assert!(between <= 60, "{between} of 600 others began before it");
        }
        assert!(db.count("select count(*) from queue.ready").await > 20, "they were waiting all the time");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn lanes_under_one_limit_take_turns_while_their_worker_sleeps() {
    for most in [1, 2] {
        let db = fresh().await;
        set(&db, "type:unlimited", Limit::new().concurrency(most)).await;
        db.run_while(worker(&db), async {
            eventually("it sleeps", async || db.count("select count(*) from queue.idle").await > 0).await;
            let mut tx = db.pool.begin().await.unwrap();
            for queue in ["a", "b", "c"] {
                for _ in 0..20 {
                    Unlimited { ms: 5 }.enqueue(&mut tx).queue(queue).await.unwrap();
                }
            }
            tx.commit().await.unwrap();
            eventually("all have run", async || ended(&db).await == 60).await;
        })
        .await;
        for queue in ["a", "b", "c"] {
            let first = format!(
                "select count(*) from (select job from effect_span order by n limit 24) s join queue.job j on j.id = s.job
                 join queue.lane l on l.lane = j.lane where l.queue = '{queue}'"
            );
            let first = db.count(&first).await;
            assert!(first >= 4, "{first} of queue {queue} among the first 24, of {most} at once");
        }
        db.finish().await;
    }
}

#[tokio::test]
async fn limits_of_equal_priority_take_turns() {
    let db = fresh().await;
    Limited::enqueue_all((0..40).map(|_| Limited { ms: 5 }), &db.pool).await.unwrap();
    SharedOne::enqueue_all((0..40).map(|_| SharedOne { ms: 5 }), &db.pool).await.unwrap();
    db.run_while(narrow(&db, 1), eventually("all have run", async || ended(&db).await == 80)).await;
    let (one, other) = (among(&db, 40, "limited").await, among(&db, 40, "shared_one").await);
    assert!(one.min(other) >= 10, "{one} and {other}");
    db.finish().await;
}

/// Enqueues another of its kind before it ends, so that there is always one more.
#[job(name = "limits_once_more", send_only, priority = 200)]
#[derive(Serialize, Deserialize)]
struct Once;

impl Handler for Once {
    async fn run(self, cx: &Context) -> JobResult {
        Self.enqueue(cx.pool()).await?;
        span(cx, 0).await
    }
}

/// With these limits, a job of low priority runs although better ones keep coming.
async fn nobody_waits_for_ever(limits: &[&str]) {
    let db = fresh().await;
    for limit in limits {
        set(&db, limit, Limit::new().concurrency(50)).await;
    }
    Once::enqueue_all((0..40).map(|_| Once), &db.pool).await.unwrap();
    db.run_while(narrow(&db, 1).aging(Duration::from_millis(100)), async {
        eventually("some have run", async || ended(&db).await >= 3).await;
        for _ in 0..3 {
            let patient = Unlimited { ms: 0 }.enqueue(&db.pool).priority(Priority::BACKFILL).await.unwrap().id();
            db.until(patient, JobState::Completed).await;
        }
        let better = "select count(*) from queue.jobs where job_type = 'limits_once_more' and state in ('ready', 'running')";
        assert!(db.count(better).await > 20, "better ones were waiting all the time");
        let before = ended(&db).await;
        eventually("and went on", async || ended(&db).await > before + 20).await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn with_aging_better_jobs_under_the_same_limit_keep_nobody_waiting_for_ever() {
    nobody_waits_for_ever(&["queue:default"]).await;
}

#[tokio::test]
async fn with_aging_better_jobs_without_a_limit_keep_none_with_one_waiting_for_ever() {
    nobody_waits_for_ever(&["type:unlimited"]).await;
}

#[tokio::test]
async fn with_aging_better_jobs_under_a_limit_keep_none_without_one_waiting_for_ever() {
    nobody_waits_for_ever(&["type:limits_once_more"]).await;
}
