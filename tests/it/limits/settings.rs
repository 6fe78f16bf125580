//! Limits of names, queues and operators, changed while jobs run; and beside pauses, ordering keys, unique jobs and capacities.

use std::time::Duration;

use queue_core::{Job as _, JobState, Limit, Store, operate};
use tests::{TestDb, eventually, within};

use super::{Limited, SharedOne, SharedTwo, Unlimited, fresh, most_at_once, set, worker};

#[tokio::test]
async fn types_that_name_a_limit_share_it_across_queues_and_a_type_may_have_one_of_its_own_besides() {
    let db = fresh().await;
    for n in 0..12 {
        SharedOne { ms: 30 }.enqueue(&db.pool).queue(if n % 2 == 0 { "a" } else { "b" }).await.unwrap();
        SharedTwo { ms: 30 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db), worker(&db));
    db.run_while(one, db.run_until_idle(two)).await;
    assert_eq!(most_at_once(&db, &["shared_one", "shared_two"]).await, 2);
    assert_eq!(most_at_once(&db, &["shared_two"]).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_queue_has_a_limit_by_its_workers_code_which_holds_for_all_types_in_it() {
    let db = fresh().await;
    // One of them says nothing of it, and goes by it all the same.
    let (one, two) = (worker(&db).limit("render", Limit::queue().concurrency(2)), worker(&db));
    db.run_while(one, async {
        // What begins before is not held against it.
        eventually("code has said its word", async || db.count("select count(*) from queue.bound").await > 0).await;
        for _ in 0..10 {
            Unlimited { ms: 20 }.enqueue(&db.pool).queue("render").await.unwrap();
            Limited { ms: 20 }.enqueue(&db.pool).queue("render").await.unwrap();
            Unlimited { ms: 20 }.enqueue(&db.pool).queue("other").await.unwrap();
        }
        db.run_until_idle(two).await;
    })
    .await;
    let at_once = "select max(n) from (select sum(e.step) over (order by e.at, e.step) as n from (
        select s.began as at, 1 as step from effect_span s join queue.job j on j.id = s.job join queue.lane l on l.lane = j.lane and l.queue = 'render'
        union all
        select s.ended, -1 from effect_span s join queue.job j on j.id = s.job join queue.lane l on l.lane = j.lane and l.queue = 'render') e) s";
    assert_eq!(db.count(at_once).await, 2);
    assert_eq!(db.count("select count(*) from effect_span").await, 30);
    db.finish().await;
}

#[tokio::test]
async fn what_an_operator_sets_wins_over_code_at_once_and_over_deploys_until_it_is_unset() {
    let db = fresh().await;
    let limits = async || operate::limits(&db.pool, Store::default()).await.unwrap();
    let of = async |name: &str| limits().await.into_iter().find(|limit| limit.name == name);
    set(&db, "type:limited", Limit::new().concurrency(1)).await;
    db.run_while(worker(&db), async {
        eventually("code has said its word", async || of("type:limited").await.is_some_and(|limit| limit.in_code.is_some())).await;
        let limit = of("type:limited").await.unwrap();
        assert_eq!((limit.figures.concurrency, limit.in_code.unwrap().concurrency, limit.by_operator), (Some(1), Some(3), true));
        for _ in 0..10 {
            Limited { ms: 20 }.enqueue(&db.pool).await.unwrap();
        }
        eventually("all have run", async || db.count("select count(*) from effect_span where ended is not null").await == 10).await;
        assert_eq!(most_at_once(&db, &["limited"]).await, 1);
        set(&db, "type:limited", Limit::new().concurrency(0)).await;
        let waits = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        let free = Unlimited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(free, JobState::Completed).await;
        assert_eq!(db.state(waits).await, Some(JobState::Ready));
    })
    .await;
    assert_eq!(of("type:limited").await.unwrap().figures.concurrency, Some(0), "another worker changes nothing");
    db.run_while(worker(&db), async {
        eventually("it is there", async || db.count("select count(*) from queue.worker where paused_seen > 0").await == 1).await;
        assert!(operate::unset_limit(&db.pool, Store::default(), "type:limited").await.unwrap());
        eventually("code's word holds again", async || db.count("select count(*) from effect_span").await == 12).await;
        assert_eq!(of("type:limited").await.unwrap().figures.concurrency, Some(3));
        assert!(!operate::unset_limit(&db.pool, Store::default(), "type:limited").await.unwrap());
    })
    .await;
    db.finish().await;
}

/// The limit is lowered to one: what was claimed under it before ends, and then one runs at a time.
async fn lowered_to_one(db: &TestDb) {
    set(db, "type:unlimited", Limit::new().concurrency(1)).await;
    let now = "select clock_timestamp()";
    let set_at: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(now).fetch_one(&db.pool).await.unwrap();
    let earlier = format!("select count(*) from queue.lease where claimed_at <= '{set_at}'");
    eventually("what ran is over", async || db.count(&earlier).await == 0).await;
    let from: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(now).fetch_one(&db.pool).await.unwrap();
    let before = db.count("select count(*) from effect_span").await;
    eventually("some more have run", async || db.count("select count(*) from effect_span").await >= before + 6).await;
    let over = "select count(*) from effect_span s where s.began > $1 and 1 <=
      (select count(*) from effect_span o where o.n <> s.n and o.began < s.began and coalesce(o.ended, 'infinity') > s.began)";
    let over: i64 = sqlx::query_scalar(over).bind(from).fetch_one(&db.pool).await.unwrap();
    assert_eq!(over, 0, "began while another ran");
}

#[tokio::test]
#[ignore = "deep"]
async fn a_limit_that_is_set_while_jobs_run_freely_counts_them_and_one_that_is_lowered_waits_for_them() {
    let db = fresh().await;
    for _ in 0..60 {
        Unlimited { ms: 250 }.enqueue(&db.pool).await.unwrap();
    }
    let (one, two) = (worker(&db).concurrency(5), worker(&db).concurrency(5));
    db.run_while(
        one,
        Box::pin(db.run_while(two, async {
            eventually("ten run", async || db.count("select count(*) from effect_span where ended is null").await == 10).await;
            set(&db, "type:unlimited", Limit::new().concurrency(4)).await;
            let known = async || {
                operate::limits(&db.pool, Store::default())
                    .await
                    .unwrap()
                    .iter()
                    .any(|limit| limit.name == "type:unlimited" && limit.awaits == 0 && limit.used > 0)
            };
            within(Duration::from_secs(20), "all know it", known).await;
            let from: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select clock_timestamp()").fetch_one(&db.pool).await.unwrap();
            eventually("some more have run", async || db.count("select count(*) from effect_span where ended is not null").await >= 30)
                .await;
            let over = "select count(*) from effect_span s where s.began > $1 and 4 <=
            (select count(*) from effect_span o where o.n <> s.n and o.began < s.began and coalesce(o.ended, 'infinity') > s.began)";
            let over: i64 = sqlx::query_scalar(over).bind(from).fetch_one(&db.pool).await.unwrap();
            assert_eq!(over, 0, "began while four others ran");
            Box::pin(lowered_to_one(&db)).await;
            operate::unset_limit(&db.pool, Store::default(), "type:unlimited").await.unwrap();
            within(Duration::from_secs(20), "all have run", async || {
                db.count("select count(*) from effect_span where ended is not null").await == 60
            })
            .await;
        })),
    )
    .await;
    db.finish().await;
}

#[tokio::test]
async fn limits_go_with_pauses_ordering_keys_unique_jobs_and_capacities() {
    let db = fresh().await;
    let mail = operate::Scope::queue("mail");
    operate::pause(&db.pool, Store::default(), &mail, None).await.unwrap();
    operate::set_capacity(&db.pool, Store::default(), "full", Some(2)).await.unwrap();
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
        eventually("all but the paused have run", async || db.count("select count(*) from effect_span where ended is not null").await == 7)
            .await;
        assert_eq!(db.state(paused).await, Some(JobState::Ready));
        operate::resume(&db.pool, Store::default(), &mail).await.unwrap();
        db.until(paused, JobState::Completed).await;
        Limited { ms: 0 }.enqueue(&db.pool).queue("full").await.unwrap();
    })
    .await;
    let beside = "select count(*) from effect_span a join effect_span b on a.n < b.n and a.ended > b.began
        join queue.job j on j.id = a.job and j.key is not null join queue.job k on k.id = b.job and k.key = j.key";
    assert_eq!(db.count(beside).await, 0, "two of one key ran at once");
    assert!(most_at_once(&db, &["limited"]).await <= 3);
    db.finish().await;
}

#[tokio::test]
async fn what_code_says_no_more_is_forgotten_with_the_next_worker_that_says_so() {
    let db = fresh().await;
    let names = async || {
        let found = operate::limits(&db.pool, Store::default()).await.unwrap();
        found.into_iter().map(|limit| limit.name).collect::<Vec<_>>()
    };
    let said = async |count: usize| eventually("code has said its word", async || names().await.len() == count).await;
    db.run_while(worker(&db).queue("render", 2).limit("render", Limit::queue().concurrency(1)), said(4)).await;
    assert_eq!(names().await, ["queue:render", "shared", "type:limited", "type:shared_two"]);
    db.run_while(worker(&db), said(4)).await;
    db.run_while(worker(&db).queue("render", 2), said(3)).await;
    // Of types that this one does not know it says nothing.
    let other = queue_worker::Worker::new(db.pool.clone()).register::<Unlimited>();
    db.run_while(other, async {
        eventually("it is there", async || db.count("select count(*) from queue.worker where paused_seen > 0").await == 1).await;
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
        eventually("it runs", async || db.count("select count(*) from effect_span").await == 1).await;
        set(&db, "type:limited_before", Limit::new().concurrency(1)).await;
        let next = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        let adopted = "select count(*) from queue.gate where gate = queue.hash('type:limited_before') and adopted > 0";
        eventually("what runs is counted in", async || db.count(adopted).await == 1).await;
        let limits = operate::limits(&db.pool, Store::default()).await.unwrap();
        let limit = limits.into_iter().find(|limit| limit.name == "type:limited_before").unwrap();
        // On a busy machine the first may be over by now, and the next be the one.
        assert!(limit.used == 1 && limit.waiting <= 1, "{limit:?}");
        db.until(next, JobState::Completed).await;
    })
    .await;
    assert_eq!(most_at_once(&db, &["limited"]).await, 1);
    db.finish().await;
}
