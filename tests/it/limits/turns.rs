//! Tests the claim order: lanes with and without limits, lanes under one limit, several limits, and empty lanes.

use std::time::Duration;

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, job, options::Limit};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tests::{Sql as _, TestDb, eventually};

use super::{BEGUN, CLAIMS, ENDED, begun, count_claims, fresh, narrow, set, span, worker};

/// Set of identical jobs: type, queue, priority, number of jobs, and duration of each job in ms.
#[derive(Clone, Copy)]
struct JobSet(&'static str, &'static str, i16, i64, u64);

async fn enqueue(on: &mut PgConnection, JobSet(job_type, queue, priority, count, ms): JobSet) -> Vec<JobId> {
    on.all(&format!(
        "select queue.enqueue('{job_type}', '{{\"ms\": {ms}}}', '{{\"queue\": \"{queue}\", \"priority\": {priority}}}') from generate_series(1, {count})"
    ))
    .await
}

/// Enqueues all sets in one transaction. Returns the first job.
async fn enqueue_all(db: &TestDb, sets: &[JobSet]) -> JobId {
    let (mut tx, mut jobs) = (db.pool.begin().await.unwrap(), Vec::new());
    for set_of_jobs in sets {
        jobs.extend(enqueue(&mut tx, *set_of_jobs).await);
    }
    tx.commit().await.unwrap();
    jobs[0]
}

async fn with_limits(limits: &[&str]) -> TestDb {
    let db = fresh().await;
    for limit in limits {
        set(&db, limit, Limit::new().concurrency(50)).await;
    }
    db
}

/// Duration in ms of jobs that are too slow to be claimed in advance.
const SLOW: u64 = 200;

/// A job does not wait for probes of empty lanes. Otherwise, it would wait for one claim under each limit of these lanes.
#[tokio::test]
async fn empty_lanes_delay_no_job_while_their_worker_sleeps() {
    let many: Vec<String> = (0..16).map(|n| format!("q{n}")).collect();
    // Each case has queues with limits, a type whose lane of higher priority is empty, and the job that must not wait.
    for (name, queues, empty, job) in [
        ("those under a limit, a job without one", &[][..], "limited", JobSet("unlimited", "default", 100, 1, SLOW)),
        ("those under a limit, one under another", &[], "shared_one", JobSet("limited", "default", 100, 1, SLOW)),
        ("those of many limits, one under the last", &many, "limited", JobSet("unlimited", "last", 100, 1, 0)),
    ] {
        let db = with_limits(&["type:limited", "queue:last"]).await;
        count_claims(&db).await;
        for queue in queues {
            set(&db, &format!("queue:{queue}"), Limit::new().concurrency(5)).await;
            db.run(&format!("select queue.enqueue('unlimited', '{{\"ms\": 0}}', '{{\"queue\": \"{queue}\", \"priority\": 200}}')")).await;
        }
        enqueue_all(&db, &[JobSet(empty, "default", 200, 1, SLOW)]).await;
        enqueue_all(&db, &[job]).await;
        let worker = if queues.is_empty() { narrow(&db, 1) } else { worker(&db) };
        db.run_while(worker, async {
            for _ in 0..3 {
                db.until_asleep().await;
                let before = db.count(CLAIMS).await;
                db.until(enqueue_all(&db, &[job]).await, JobState::Completed).await;
                db.until_asleep().await;
                let between = db.count(CLAIMS).await - before;
                let most = 100 * (1 + queues.len() as i64);
                assert!(between < most, "{name}: {between} claims under limits for one job");
            }
        })
        .await;
        db.finish().await;
    }
}

/// Maximum number of jobs that a worker has already claimed when it learns of jobs with a higher priority.
const CLAIMED_AHEAD: i64 = 9;

/// Duration in ms of jobs of a lower priority. These jobs are claimed in advance, but take longer than a claim on a busy machine.
const LOWER: u64 = 50;

/// With one slot, at most [`CLAIMED_AHEAD`] jobs of the priority `lower` begin before the last job of the priority `better`.
#[tokio::test]
async fn better_jobs_begin_before_lower_ones_beside_an_empty_better_lane() {
    for (name, limits, sets, lower, better) in [
        (
            "better ones under a limit",
            &["type:limited"][..],
            [
                JobSet("unlimited", "default", 200, 1, 0),
                JobSet("unlimited", "default", 30, 60, LOWER),
                JobSet("limited", "default", 100, 20, 10),
            ],
            30,
            100,
        ),
        (
            "better ones without a limit",
            &["type:limited"],
            [
                JobSet("limited", "default", 250, 1, 0),
                JobSet("limited", "default", 100, 60, LOWER),
                JobSet("unlimited", "default", 200, 20, 10),
            ],
            100,
            200,
        ),
        (
            "better ones under another limit",
            &["type:limited", "shared"],
            [
                JobSet("shared_one", "default", 250, 1, 0),
                JobSet("shared_one", "default", 30, 60, LOWER),
                JobSet("limited", "default", 100, 20, 10),
            ],
            30,
            100,
        ),
    ] {
        let db = with_limits(limits).await;
        enqueue_all(&db, &sets).await;
        db.run_while(narrow(&db, 1), db.until_count(&begun(&format!("priority = {better}")), 20)).await;
        let earlier = begun(&format!("priority = {lower} and n < (select max(n) from span where priority = {better})"));
        let earlier = db.count(&earlier).await;
        assert!(earlier <= CLAIMED_AHEAD, "{name}: {earlier} of a lower priority began before the last of the better ones");
        db.finish().await;
    }
}

/// Among the first `first` jobs that begin, each kind has at least `least` jobs.
#[tokio::test]
#[ignore = "deep"]
async fn kinds_of_equal_priority_take_turns() {
    let types = ["job_type = 'limited'", "job_type in ('unlimited', 'shared_one')"];
    let queues = ["queue = 'a'", "queue = 'b'", "queue = 'c'"];
    // Jobs of both kinds take longer than a claim, so that jobs of each kind are always waiting.
    let with_and_without = [JobSet("limited", "default", 100, 40, 30), JobSet("unlimited", "default", 100, 40, 30)];
    let of_two_limits = [JobSet("limited", "default", 100, 40, 5), JobSet("shared_one", "default", 100, 40, 5)];
    let lanes = ["a", "b", "c"].map(|queue| JobSet("unlimited", queue, 100, 20, 5));
    for (name, slots, limit, sets, (first, least), kinds) in [
        ("with a limit and without one", 1, ("type:limited", 50), &with_and_without[..], (50, 15), &types[..]),
        ("the same with three slots", 3, ("type:limited", 50), &with_and_without, (50, 15), &types),
        ("under limits of their own", 1, ("type:limited", 3), &of_two_limits, (40, 10), &types),
        ("lanes under one limit of one", 10, ("type:unlimited", 1), &lanes, (24, 4), &queues),
        ("lanes under one limit of two", 10, ("type:unlimited", 2), &lanes, (24, 4), &queues),
    ] {
        let db = fresh().await;
        set(&db, limit.0, Limit::new().concurrency(limit.1)).await;
        let worker = if slots == 10 { worker(&db) } else { narrow(&db, slots) };
        db.run_while(worker, async {
            db.until_asleep().await;
            enqueue_all(&db, sets).await;
            db.until_count(ENDED, sets.iter().map(|set_of_jobs| set_of_jobs.3).sum()).await;
        })
        .await;
        for kind in kinds {
            let of = db.count(&format!("select count(*) from (select * from span order by n limit {first}) s where {kind}")).await;
            assert!(of >= least, "{name}: {of} of the first {first} are those whose {kind}");
        }
        db.finish().await;
    }
}

/// At most `most` other jobs begin between the enqueue and the start of an urgent job. The worker has one slot.
#[tokio::test]
async fn an_urgent_job_with_a_limit_or_without_one_begins_before_others_that_wait() {
    for (name, crowd, urgent, most) in [
        ("without a limit, before those that a limit has room for", JobSet("limited", "default", 100, 600, 30), "unlimited", 60),
        ("under a limit, before those without one", JobSet("unlimited", "default", 100, 600, 30), "limited", 60),
    ] {
        let db = with_limits(&["type:limited"]).await;
        enqueue_all(&db, &[crowd]).await;
        db.run_while(narrow(&db, 1), async {
            eventually("some have run", async || db.count(ENDED).await >= 3).await;
            for _ in 0..3 {
                let urgent = enqueue_all(&db, &[JobSet(urgent, "default", 200, 1, 0)]).await;
                let before = db.count(ENDED).await;
                db.until(urgent, JobState::Completed).await;
                let between = begun(&format!("n < (select n from span where job = {urgent}) and n > {before}"));
                let between = db.count(&between).await;
                assert!(between <= most, "{name}: {between} of the others began before it");
            }
            assert!(db.rows_of(&["ready"]).await > 20, "{name}: they were waiting all the time");
        })
        .await;
        db.finish().await;
    }
}

/// High-priority job that enqueues its own successor before it ends, so that such a job is always waiting.
#[job(name = "limits_once_more", send_only, priority = 200)]
#[derive(Serialize, Deserialize)]
struct Once {
    queue: String,
}

impl Handler for Once {
    async fn run(self, cx: &Context) -> JobResult {
        Self { queue: self.queue.clone() }.enqueue(cx.pool()).queue(&*self.queue).await?;
        span(cx, 0).await
    }
}

async fn once_more(db: &TestDb, count: usize, queue: &str) {
    Once::enqueue_all((0..count).map(|_| Once { queue: queue.to_owned() }), &db.pool).queue(queue).await.unwrap();
}

#[tokio::test]
async fn with_aging_better_jobs_starve_none_with_or_without_a_limit() {
    for limit in ["queue:default", "type:unlimited", "type:limits_once_more"] {
        let db = with_limits(&[limit]).await;
        once_more(&db, 40, "default").await;
        db.run_while(narrow(&db, 1).register::<Once>().aging(Duration::from_millis(100)), async {
            eventually("some have run", async || db.count(ENDED).await >= 3).await;
            for _ in 0..3 {
                db.until(enqueue_all(&db, &[JobSet("unlimited", "default", 30, 1, 0)]).await, JobState::Completed).await;
            }
            let better = "select count(*) from queue.jobs where job_type = 'limits_once_more' and state in ('ready', 'running')";
            assert!(db.count(better).await > 20, "{limit}: better ones were waiting all the time");
            let before = db.count(ENDED).await;
            eventually("and went on", async || db.count(ENDED).await > before + 20).await;
        })
        .await;
        db.finish().await;
    }
}

/// Jobs of the higher priority are always waiting, even if the worker has many slots.
#[tokio::test]
async fn better_jobs_of_one_queue_delay_limited_ones_of_their_own_queue_and_of_no_other() {
    for slots in [1, 50] {
        let db = with_limits(&["type:limited"]).await;
        // Run one job in each lane first, so that the worker has found both lanes.
        enqueue_all(&db, &["a", "b"].map(|queue| JobSet("limited", queue, 100, 1, 0))).await;
        db.run_while(narrow(&db, slots).register::<Once>(), async {
            db.until_count(ENDED, 2).await;
            once_more(&db, 200, "a").await;
            eventually("some have run", async || db.count(BEGUN).await > 5).await;
            let held = enqueue_all(&db, &[JobSet("limited", "a", 100, 1, 0)]).await;
            for _ in 0..3 {
                db.until(enqueue_all(&db, &[JobSet("limited", "b", 100, 1, 0)]).await, JobState::Completed).await;
            }
            assert_eq!(db.state(held).await, Some(JobState::Ready), "with {slots} slots: better ones go first");
        })
        .await;
        db.finish().await;
    }
}
