//! Tests changes of limits while jobs are running: limits shared by name, limits of queues, and limits set by operators. Also tests
//! limits together with pauses, ordering keys, unique jobs and capacities.

use queue_core::{Job as _, JobState, Queue, operate, options::Limit};
use tests::{TestDb, eventually};

use super::{BEGUN, ENDED, Limited, Unlimited, fresh, most_at_once, set, worker};

#[tokio::test]
async fn an_operators_limit_overrides_code_immediately_and_across_deploys_until_it_is_unset() {
    let db = fresh().await;
    let limits = async || Queue::new(&db.pool).limits().await.unwrap();
    let of = async |name: &str| limits().await.into_iter().find(|limit| limit.name == name);
    set(&db, "type:limited", Limit::new().concurrency(1)).await;
    db.run_while(worker(&db), async {
        eventually("the limit in code is published", async || of("type:limited").await.is_some_and(|limit| limit.in_code.is_some())).await;
        let limit = of("type:limited").await.unwrap();
        assert_eq!((limit.figures.concurrency, limit.in_code.unwrap().concurrency, limit.by_operator), (Some(1), Some(3), true));
        for _ in 0..10 {
            Limited { ms: 20 }.enqueue(&db.pool).await.unwrap();
        }
        db.until_count(ENDED, 10).await;
        assert_eq!(most_at_once(&db, "job_type = 'limited'").await, 1);
        set(&db, "type:limited", Limit::new().concurrency(0)).await;
        let waits = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        let free = Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(free, JobState::Completed).await;
        assert_eq!(db.state(waits).await, Some(JobState::Ready));
    })
    .await;
    assert_eq!(of("type:limited").await.unwrap().figures.concurrency, Some(0), "another worker changes nothing");
    db.run_while(worker(&db), async {
        db.until_count("select count(*) from queue.worker where paused_seen > 0", 1).await;
        assert!(Queue::new(&db.pool).unset_limit("type:limited").await.unwrap());
        db.until_count(BEGUN, 12).await;
        assert_eq!(of("type:limited").await.unwrap().figures.concurrency, Some(3));
        assert!(!Queue::new(&db.pool).unset_limit("type:limited").await.unwrap());
    })
    .await;
    db.finish().await;
}

/// Waits until the current leases have ended. Checks that none of the next jobs starts while `others` or more other jobs are running.
async fn none_begins_beside(db: &TestDb, others: i64) {
    let now = "select clock_timestamp()";
    let set_at: chrono::DateTime<chrono::Utc> = db.one(now).await;
    db.until_count(&format!("select count(*) from queue.lease where claimed_at <= '{set_at}'"), 0).await;
    let from: chrono::DateTime<chrono::Utc> = db.one(now).await;
    let before = db.count(BEGUN).await;
    eventually("some more have run", async || db.count(BEGUN).await >= before + 8).await;
    let query = format!(
        "select count(*) from effect_span s where s.began > '{from}' and {others} <=
           (select count(*) from effect_span o where o.n <> s.n and o.began < s.began and coalesce(o.ended, 'infinity') > s.began)"
    );
    assert_eq!(db.count(&query).await, 0, "began while {others} others ran");
}

#[tokio::test]
#[ignore = "deep"]
async fn a_limit_that_is_set_while_jobs_run_freely_counts_them_and_one_that_is_lowered_waits_for_them() {
    let db = fresh().await;
    for _ in 0..60 {
        Unlimited { ms: 250 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db).concurrency(5), worker(&db).concurrency(5));
    let changed = async {
        db.until_count("select count(*) from effect_span where ended is null", 10).await;
        for concurrency in [4, 1] {
            set(&db, "type:unlimited", Limit::new().concurrency(concurrency)).await;
            let known = async || {
                let limits = Queue::new(&db.pool).limits().await.unwrap();
                limits.iter().any(|limit| limit.name == "type:unlimited" && limit.awaits == 0 && limit.used > 0)
            };
            eventually("all know it", known).await;
            none_begins_beside(&db, concurrency.into()).await;
        }
        Queue::new(&db.pool).unset_limit("type:unlimited").await.unwrap();
        db.until_count(ENDED, 60).await;
    };
    db.run_while(one, Box::pin(db.run_while(two, changed))).await;
    db.finish().await;
}

#[tokio::test]
async fn limits_combine_with_pauses_ordering_keys_unique_jobs_and_capacities() {
    let db = fresh().await;
    let mail = operate::Scope::queue("mail");
    Queue::new(&db.pool).pause(&mail).await.unwrap();
    Queue::new(&db.pool).set_capacity("full", Some(2)).await.unwrap();
    let paused = Limited { ms: 0 }.enqueue(&db.pool).queue("mail").await.unwrap().id();
    for _ in 0..4 {
        Limited { ms: 20 }.enqueue(&db.pool).key("k").await.unwrap();
    }
    Limited { ms: 20 }.enqueue(&db.pool).unique("u").await.unwrap();
    Limited { ms: 20 }.enqueue(&db.pool).unique("u").await.unwrap();
    for _ in 0..2 {
        Limited { ms: 20 }.enqueue(&db.pool).queue("full").await.unwrap();
    }
    assert!(Limited { ms: 20 }.enqueue(&db.pool).queue("full").await.is_err());
    db.run_while(worker(&db), async {
        db.until_count(ENDED, 7).await;
        assert_eq!(db.state(paused).await, Some(JobState::Ready));
        Queue::new(&db.pool).resume(&mail).await.unwrap();
        db.until(paused, JobState::Completed).await;
        Limited { ms: 0 }.enqueue(&db.pool).queue("full").await.unwrap();
    })
    .await;
    let beside = "select count(*) from effect_span a join effect_span b on a.n < b.n and a.ended > b.began
        join queue.job j on j.id = a.job and j.key is not null join queue.job k on k.id = b.job and k.key = j.key";
    assert_eq!(db.count(beside).await, 0, "two of one key ran concurrently");
    assert!(most_at_once(&db, "job_type = 'limited'").await <= 3);
    db.finish().await;
}

#[tokio::test]
async fn a_limit_removed_from_code_is_deleted_by_the_next_worker_of_that_release() {
    let db = fresh().await;
    let names = async || {
        let found = Queue::new(&db.pool).limits().await.unwrap();
        found.into_iter().map(|limit| limit.name).collect::<Vec<_>>()
    };
    let published = async |count: usize| eventually("the limit in code is published", async || names().await.len() == count).await;
    db.run_while(worker(&db).queue("render", 2).limit("render", Limit::queue().concurrency(1)), published(4)).await;
    assert_eq!(names().await, ["queue:render", "shared", "type:limited", "type:shared_two"]);
    db.run_while(worker(&db), published(4)).await;
    db.run_while(worker(&db).queue("render", 2), published(3)).await;
    // A worker publishes no limits of types that it has not registered, so it does not delete them either.
    let other = queue_worker::Worker::new(db.pool.clone()).register::<Unlimited>();
    db.run_while(other, async {
        db.until_count("select count(*) from queue.worker where paused_seen > 0", 1).await;
    })
    .await;
    assert_eq!(names().await, ["shared", "type:limited", "type:shared_two"]);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_limit_on_an_earlier_name_of_a_type_counts_what_runs_under_the_new_one() {
    let db = fresh().await;
    db.run_while(worker(&db), async {
        Limited { ms: 3000 }.enqueue(&db.pool).await.unwrap();
        db.until_count(BEGUN, 1).await;
        set(&db, "type:limited_before", Limit::new().concurrency(1)).await;
        let next = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        let adopted = "select count(*) from queue.limiter where limit_id = queue.hash('type:limited_before') and adopted > 0";
        db.until_count(adopted, 1).await;
        let limits = Queue::new(&db.pool).limits().await.unwrap();
        let limit = limits.into_iter().find(|limit| limit.name == "type:limited_before").unwrap();
        // On a busy machine, the first job may have finished already, and the next job may be running instead.
        assert!(limit.used == 1 && limit.waiting <= 1, "{limit:?}");
        db.until(next, JobState::Completed).await;
    })
    .await;
    assert_eq!(most_at_once(&db, "job_type = 'limited'").await, 1);
    db.finish().await;
}
