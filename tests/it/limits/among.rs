//! Lanes that are empty keep nobody waiting: neither empty limits other jobs, nor empty lanes without limits those under some.

use std::time::{Duration, Instant};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Limit, Priority, job};
use serde::{Deserialize, Serialize};
use tests::{TestDb, eventually, within};

use super::{Limited, SharedOne, Unlimited, fresh, set, turns::narrow, worker};

/// A job that has nothing to wait for begins long before this.
const SOON: Duration = Duration::from_secs(5);

/// Asks the database for nothing: however many there are, none of them holds up the next.
#[job(name = "limits_many", send_only)]
#[derive(Serialize, Deserialize)]
struct Many;

impl Handler for Many {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

/// Jobs that take this many ms are not claimed in advance.
const SLOW: u64 = 200;

async fn sleeps(db: &TestDb) {
    eventually("it sleeps", async || db.count("select count(*) from queue.idle").await > 0).await;
}

async fn has_run(db: &TestDb, job: JobId) -> bool {
    db.state(job).await == Some(JobState::Completed)
}

/// How many claims under limits there were.
async fn calls(db: &TestDb) -> i64 {
    db.count("select coalesce(max(calls), 0)::bigint from pg_stat_user_functions where funcname = 'claim_limited'").await
}

/// How many are ready in this queue.
async fn ready(db: &TestDb, queue: &str) -> i64 {
    db.count(&format!("select count(*) from queue.jobs where state = 'ready' and queue = '{queue}'")).await
}

#[tokio::test]
async fn empty_lanes_under_a_limit_keep_no_other_job_waiting_while_their_worker_sleeps() {
    let db = fresh().await;
    Limited { ms: SLOW }.enqueue(&db.pool).priority(200).await.unwrap();
    Unlimited { ms: SLOW }.enqueue(&db.pool).await.unwrap();
    db.run_while(narrow(&db, 1), async {
        for _ in 0..3 {
            sleeps(&db).await;
            let before = calls(&db).await;
            let plain = Unlimited { ms: SLOW }.enqueue(&db.pool).await.unwrap().id();
            within(SOON, "the plain job has run", async || has_run(&db, plain).await).await;
            sleeps(&db).await;
            let between = calls(&db).await - before;
            assert!(between < 100, "{between} claims under the limit for one job");
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn empty_lanes_under_one_limit_keep_no_job_under_another_waiting() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(5)).await;
    SharedOne { ms: SLOW }.enqueue(&db.pool).priority(200).await.unwrap();
    Limited { ms: SLOW }.enqueue(&db.pool).await.unwrap();
    db.run_while(narrow(&db, 1), async {
        for _ in 0..3 {
            sleeps(&db).await;
            let other = Limited { ms: SLOW }.enqueue(&db.pool).await.unwrap().id();
            within(SOON, "the job under the other limit has run", async || has_run(&db, other).await).await;
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn of_many_limits_the_empty_ones_keep_no_job_under_another_waiting() {
    let db = fresh().await;
    let better: Vec<String> = (0..16).map(|n| format!("q{n}")).collect();
    for queue in better.iter().map(String::as_str).chain(["last"]) {
        set(&db, &format!("queue:{queue}"), Limit::new().concurrency(5)).await;
        let priority = if queue == "last" { 100 } else { 200 };
        Unlimited { ms: 0 }.enqueue(&db.pool).queue(queue).priority(priority).await.unwrap();
    }
    let mut took = Vec::new();
    db.run_while(worker(&db), async {
        for _ in 0..6 {
            sleeps(&db).await;
            let asked = Instant::now();
            let last = Unlimited { ms: 0 }.enqueue(&db.pool).queue("last").await.unwrap().id();
            within(SOON, "the job under the last limit has run", async || has_run(&db, last).await).await;
            took.push(asked.elapsed());
        }
    })
    .await;
    took.sort();
    eprintln!("under the last of many limits: {took:?}");
    // If one waits for looks at the empty ones, each does; a machine that is busy with others is slow now and then.
    assert!(took[0] < Duration::from_millis(400), "each waits for looks at the empty ones: {took:?}");
    db.finish().await;
}

#[tokio::test]
async fn an_empty_lane_of_a_higher_priority_lets_jobs_under_a_limit_go_before_lower_ones() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Unlimited { ms: 0 }.enqueue(&db.pool).priority(200).await.unwrap();
    Unlimited::enqueue_all((0..60).map(|_| Unlimited { ms: 10 }), &db.pool).priority(Priority::BACKFILL).await.unwrap();
    Limited::enqueue_all((0..20).map(|_| Limited { ms: 10 }), &db.pool).await.unwrap();
    let ended = async || db.count("select count(*) from effect_span where ended is not null").await == 81;
    db.run_while(narrow(&db, 1), eventually("all have run", ended)).await;
    let first = "select count(*) from (select job_type from effect_span order by n limit 60) s where job_type = 'limited'";
    let first = db.count(first).await;
    assert!(first >= 15, "{first} of 20 under the limit among the first 60");
    db.finish().await;
}

#[tokio::test]
async fn many_jobs_in_one_queue_keep_none_under_a_limit_waiting_in_another() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Unlimited { ms: 0 }.enqueue(&db.pool).queue("c").priority(200).await.unwrap();
    Many::enqueue_all((0..8000).map(|_| Many), &db.pool).queue("a").priority(200).await.unwrap();
    db.run_while(narrow(&db, 1000).register::<Many>(), async {
        eventually("some have run", async || ready(&db, "a").await < 7900).await;
        let limited = Limited { ms: 0 }.enqueue(&db.pool).queue("c").await.unwrap().id();
        eventually("the job in the other queue has run", async || has_run(&db, limited).await).await;
        let left = ready(&db, "a").await;
        eprintln!("{left} of the others were left");
        assert!(left > 1000, "it waited for all but {left} of the others");
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn lanes_under_one_limit_in_two_queues_wait_in_the_busier_one_only() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Unlimited::enqueue_all((0..300).map(|_| Unlimited { ms: 20 }), &db.pool).queue("a").priority(200).await.unwrap();
    // The worker knows of the limit before.
    Limited { ms: 0 }.enqueue(&db.pool).queue("a").await.unwrap();
    db.run_while(narrow(&db, 1), async {
        eventually("some have run", async || ready(&db, "a").await < 295).await;
        let held = Limited { ms: 0 }.enqueue(&db.pool).queue("a").await.unwrap().id();
        for _ in 0..3 {
            let limited = Limited { ms: 0 }.enqueue(&db.pool).queue("b").await.unwrap().id();
            within(SOON, "the job in the other queue has run", async || has_run(&db, limited).await).await;
        }
        assert!(ready(&db, "a").await > 20, "there were many all the time");
        assert_eq!(db.state(held).await, Some(JobState::Ready), "better ones go first");
    })
    .await;
    db.finish().await;
}

/// How many jobs of this priority began before the last of that one.
async fn before_the_last(db: &TestDb, of: i16, last: i16) -> i64 {
    let with = "(select s.n, l.priority from effect_span s join queue.job j on j.id = s.job join lateral
      (select d.priority from queue.lane d where d.lane = j.lane limit 1) l on true)";
    db.count(&format!(
        "select count(*) from {with} a where a.priority = {of} and a.n < (select max(b.n) from {with} b where b.priority = {last})"
    ))
    .await
}

/// Runs them all, one at a time.
async fn run_one_by_one(db: &TestDb, jobs: i64) {
    let ended = async || db.count("select count(*) from effect_span where ended is not null").await == jobs;
    db.run_while(narrow(db, 1), eventually("all have run", ended)).await;
}

/// Those that are claimed already when a worker comes to know better ones.
const IN_THE_AIR: i64 = 9;

#[tokio::test]
async fn jobs_under_a_limit_begin_before_lower_ones_beside_an_empty_lane_that_is_better_than_both() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Unlimited { ms: 0 }.enqueue(&db.pool).priority(200).await.unwrap();
    Unlimited::enqueue_all((0..60).map(|_| Unlimited { ms: 10 }), &db.pool).priority(30).await.unwrap();
    Limited::enqueue_all((0..20).map(|_| Limited { ms: 10 }), &db.pool).priority(100).await.unwrap();
    run_one_by_one(&db, 81).await;
    let lower = before_the_last(&db, 30, 100).await;
    assert!(lower <= IN_THE_AIR, "{lower} of a lower priority began before the last under the limit");
    db.finish().await;
}

#[tokio::test]
async fn an_empty_lane_under_a_limit_takes_no_lower_ones_under_it_before_better_jobs_without_one() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    Limited { ms: 0 }.enqueue(&db.pool).priority(250).await.unwrap();
    Limited::enqueue_all((0..20).map(|_| Limited { ms: 10 }), &db.pool).priority(100).await.unwrap();
    Unlimited::enqueue_all((0..20).map(|_| Unlimited { ms: 10 }), &db.pool).priority(200).await.unwrap();
    run_one_by_one(&db, 41).await;
    let lower = before_the_last(&db, 100, 200).await;
    assert!(lower <= IN_THE_AIR, "{lower} of a lower priority began before the last without a limit");
    db.finish().await;
}

#[tokio::test]
async fn an_empty_lane_under_one_limit_takes_no_lower_ones_under_it_before_better_jobs_under_another() {
    let db = fresh().await;
    set(&db, "type:limited", Limit::new().concurrency(50)).await;
    set(&db, "shared", Limit::new().concurrency(50)).await;
    SharedOne { ms: 0 }.enqueue(&db.pool).priority(250).await.unwrap();
    SharedOne::enqueue_all((0..20).map(|_| SharedOne { ms: 10 }), &db.pool).priority(30).await.unwrap();
    Limited::enqueue_all((0..20).map(|_| Limited { ms: 10 }), &db.pool).priority(100).await.unwrap();
    run_one_by_one(&db, 41).await;
    let lower = before_the_last(&db, 30, 100).await;
    assert!(lower <= IN_THE_AIR, "{lower} of a lower priority began before the last under the other limit");
    db.finish().await;
}
