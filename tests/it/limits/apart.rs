//! Tests that failures under one limit do not stop other jobs. Ready jobs under a limit are found, regardless of how they became ready.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job as _, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::Connection as _;
use tests::{Sql as _, TestDb, eventually};

use super::{BEGUN, Limited, UNTIL_GO, Unlimited, begun, fresh, narrow, span, worker};

/// Job that enqueues the next job of its type.
#[job(name = "limits_free", send_only)]
#[derive(Serialize, Deserialize)]
struct Free {
    left: u32,
}

impl Handler for Free {
    async fn run(self, cx: &Context) -> JobResult {
        if self.left > 0 {
            Self { left: self.left - 1 }.enqueue(cx.pool()).await?;
        }
        span(cx, 0).await
    }
}

/// Runs a hundred jobs without a limit, one after the other. If each job waited one second, the test would time out.
async fn free_jobs(db: &TestDb) {
    Free { left: 99 }.enqueue(&db.pool).await.unwrap();
    db.until_count(&begun("job_type = 'limits_free'"), 100).await;
}

#[tokio::test]
#[ignore = "deep"]
async fn claims_that_fail_under_one_limit_stop_nothing_else() {
    let db = fresh().await;
    // Claims under this limit fail, as if the disk were full or a page corrupt.
    db.run("alter table queue.permit add constraint broken check (limit_id <> queue.hash('type:limited'))").await;
    db.run_while(worker(&db).register::<Free>(), async {
        let waits = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        free_jobs(&db).await;
        assert_eq!(db.state(waits).await, Some(JobState::Ready));
        db.run("alter table queue.permit drop constraint broken").await;
        db.until(waits, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// Job that fails with `slow_down` once the table `go` exists. The failure closes the limit of the job type.
#[job(name = "limits_refused", send_only, limit(concurrency = 5))]
#[derive(Serialize, Deserialize)]
struct Refused;

impl Handler for Refused {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, UNTIL_GO).await?;
        Err(Failure::slow_down(Duration::from_hours(1), "429"))
    }
}

fn refused(db: &TestDb) -> Worker {
    worker(db).register::<Refused>().register::<Free>()
}

async fn enqueue_four(db: &TestDb) {
    Refused::enqueue_all((0..4).map(|_| Refused), &db.pool).await.unwrap();
}

/// Query that returns 1 if the limit of the `Refused` jobs is closed.
const SLOWED_DOWN: &str =
    "select count(*) from queue.limiter where limit_id = queue.hash('type:limits_refused') and not_before > now() + interval '5 s'";

/// Statement that makes every attempt to close a limit fail and counts these attempts.
const REFUSE_SLOW_DOWN: &str = "create sequence tries;
    create function refuse() returns trigger language plpgsql as $$ begin perform nextval('public.tries'); raise exception 'not now'; end $$;
    create trigger refuse before update of not_before on queue.limiter for each row execute function refuse()";
const TRIES: &str = "select case when is_called then last_value else 0 end from tries";

/// The worker starts no jobs under the limit, even if one of its claims was already waiting for the limit when the handler failed with
/// `slow_down`. The jobs of such a claim are released.
#[tokio::test]
#[ignore = "deep"]
async fn a_limit_that_cannot_be_slowed_down_is_avoided_by_the_worker_that_knows() {
    const WAITS: &str = "select count(*) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and application_name = 'queue-worker limits'";
    for on_its_way in [true, false] {
        let db = fresh().await;
        db.run(REFUSE_SLOW_DOWN).await;
        let mut holder = db.connect().await;
        db.run_while(refused(&db), async {
            let refused = Refused.enqueue(&db.pool).await.unwrap().id();
            db.until_count(BEGUN, 1).await;
            let mut open = holder.begin().await.unwrap();
            if on_its_way {
                open.run("select from queue.limiter where limit_id = queue.hash('type:limits_refused') for update").await;
                enqueue_four(&db).await;
                eventually("a claim waits for the limit", async || db.count(WAITS).await > 0).await;
            }
            db.run("create table go ()").await;
            db.until(refused, JobState::Scheduled).await;
            open.rollback().await.unwrap();
            eventually("a report is tried", async || db.count(TRIES).await > 0).await;
            if !on_its_way {
                enqueue_four(&db).await;
            }
            eventually("and tries again", async || db.count(TRIES).await > 3).await;
            assert_eq!(db.count(BEGUN).await, 1, "none begins under a limit that is to wait, and what was taken goes back");
            assert_eq!(db.count("select count(*) from queue.jobs where state = 'ready' and attempts > 0").await, 0, "uncharged");
            db.run("drop trigger refuse on queue.limiter").await;
            db.until_count(SLOWED_DOWN, 1).await;
            assert_eq!(db.count(BEGUN).await, 1);
        })
        .await;
        db.finish().await;
    }
}

#[tokio::test]
async fn due_jobs_become_ready_while_all_slots_of_a_worker_with_limits_are_taken() {
    let db = fresh().await;
    db.run_while(narrow(&db, 1), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        db.until_asleep().await;
        Unlimited { ms: UNTIL_GO }.enqueue(&db.pool).await.unwrap();
        db.until_count(BEGUN, 2).await;
        // The worker learns the due times of the next scheduled jobs only from a query.
        for n in 1..=3 {
            Unlimited { ms: 0 }.enqueue(&db.pool).after(Duration::from_millis(300 * n)).await.unwrap();
        }
        db.until_count("select count(*) from queue.scheduled", 0).await;
        assert_eq!(db.count(BEGUN).await, 2, "the slot was taken all the time");
        db.run("create table go ()").await;
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_late_commit_under_a_limit_is_found_by_a_sleeping_worker() {
    let db = fresh().await;
    db.run_while(worker(&db).poll_interval(Duration::from_millis(20)), async {
        let first = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        for _ in 0..4 {
            db.until_asleep().await;
            let mut tx = db.pool.begin().await.unwrap();
            let late = Limited { ms: 0 }.enqueue(&mut tx).await.unwrap().id();
            let above = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
            db.until(above, JobState::Completed).await;
            db.until_asleep().await;
            tx.commit().await.unwrap();
            db.until(late, JobState::Completed).await;
        }
    })
    .await;
    db.finish().await;
}

/// Two claims wait for the locked limit: a claim that only reports ended leases, and then a claim that takes jobs.
#[tokio::test]
#[ignore = "deep"]
async fn a_claim_that_reports_ended_leases_delays_no_other_while_a_limit_is_locked() {
    const FREE: &str = "select count(*) from (select from queue.ready for update skip locked) r";
    let db = fresh().await;
    let mut holder = db.connect().await;
    db.run_while(worker(&db), async {
        let first = Limited { ms: UNTIL_GO }.enqueue(&db.pool).await.unwrap().id();
        db.until_count(BEGUN, 1).await;
        let mut open = holder.begin().await.unwrap();
        open.run("select from queue.limiter for update").await;
        db.run("create table go ()").await;
        db.until(first, JobState::Completed).await;
        let next = Limited { ms: 0 }.enqueue(&db.pool).await.unwrap().id();
        eventually("a claim has it, and waits", async || db.count(FREE).await == 0).await;
        assert_eq!(db.state(next).await, Some(JobState::Ready));
        open.rollback().await.unwrap();
        db.until(next, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// Fair job under a limit. All attempts before the hundredth fail.
#[job(name = "limits_fair_retried", send_only, fair = self.tenant, limit(concurrency = 5), max_attempts = 100, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct FairRetried {
    tenant: u32,
}

impl Handler for FairRetried {
    async fn run(self, cx: &Context) -> JobResult {
        span(cx, 0).await?;
        if cx.attempt() < 100 { Err("again".into()) } else { Ok(()) }
    }
}

/// A retry that waited for the next poll would take a second.
#[tokio::test]
async fn retries_of_fair_jobs_under_a_limit_begin_without_a_poll() {
    let db = fresh().await;
    db.run_until_idle(worker(&db).register::<FairRetried>()).await;
    let job = FairRetried { tenant: 1 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(worker(&db).register::<FairRetried>(), db.until(job, JobState::Completed)).await;
    assert_eq!(db.count(BEGUN).await, 100, "each attempt once");
    db.finish().await;
}
