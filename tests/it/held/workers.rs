//! Tests a running worker while another session has locked tables or rows. Jobs that do not need the locked tables or rows finish, and
//! the worker stops.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job, JobHandle, JobResult, JobState, Queue, job, options::Limit};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, PgConnection};
use tests::{Act, Do, Marked, Stages, Steps, TestDb, UntilGo, eventually};

use super::{connect, run};

fn worker(db: &TestDb) -> Worker {
    db.worker().register::<Marked>().register::<Steps>().register::<Stages>().register::<UntilGo>().register::<Refused>()
}

/// Runs jobs that complete with and without an output, become dead letters, save checkpoints, or have steps.
async fn others_end(db: &TestDb) {
    async fn enqueued<J: Job>(db: &TestDb, job: J) -> queue_core::JobId {
        job.enqueue(&db.pool).await.as_ref().map(JobHandle::id).unwrap()
    }
    for (job, state) in [
        (enqueued(db, Do { act: Act::Ok("x".into()) }).await, JobState::Completed),
        (enqueued(db, Do { act: Act::Terminal("x".into()) }).await, JobState::Dead),
        (enqueued(db, Marked { ms: 0 }).await, JobState::Completed),
        (enqueued(db, Steps { steps: 2, hold: None }).await, JobState::Completed),
        (enqueued(db, Stages { stages: 1, ms: 0 }).await, JobState::Completed),
    ] {
        db.until(job, state).await;
    }
}

/// Returns a session that has run `sql` in a transaction that stays open.
async fn holder(db: &TestDb, sql: &str) -> PgConnection {
    let mut holder = connect(db).await;
    run(&mut holder, &format!("begin; {sql}")).await;
    holder
}

/// Generates one test for each set of tables. Another session locks the tables before the worker starts, and unlocks them after the
/// worker has stopped.
macro_rules! tables {
    ($(fn $name:ident: $tables:literal;)+) => {$(
        #[tokio::test]
        async fn $name() {
            let db = TestDb::new().await;
            let mut holder = holder(&db, concat!("lock table ", $tables, " in access exclusive mode")).await;
            db.run_while(worker(&db), others_end(&db)).await;
            run(&mut holder, "rollback").await;
            db.finish().await;
        }
    )+};
}

tables! {
    fn jobs_that_are_no_nodes_end_while_tables_of_flows_are_locked: "queue.edge, queue.node, queue.node_hint";
    fn jobs_that_are_no_children_end_while_the_table_of_children_is_locked: "queue.child";
    fn jobs_that_are_no_parts_end_while_tables_of_maps_are_locked: "queue.gather_part, queue.map_batch, queue.gather";
    fn jobs_end_while_outcomes_cannot_be_written: "queue.tallied";
}

#[tokio::test]
async fn jobs_of_other_leases_end_while_one_lease_is_locked() {
    let db = TestDb::new().await;
    db.run_while(worker(&db), async {
        let first = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Running).await;
        let mut holder = holder(&db, "select from queue.lease for update").await;
        db.pool.execute("create table go ()").await.unwrap();
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        eventually("its verdict waits", async || db.count(waits).await == 1).await;
        others_end(&db).await;
        assert_eq!(db.state(first).await, Some(JobState::Running));
        run(&mut holder, "rollback").await;
        db.until(first, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// Sets a limit and waits until the worker has acknowledged the limit.
async fn limited(db: &TestDb, limit: &str) {
    Queue::new(&db.pool).set_limit(limit, Limit::new().concurrency(5), None).await.unwrap();
    let known = "select count(*) from queue.worker w join queue.bound b on b.number <= w.paused_seen";
    eventually("the worker knows the limit", async || db.count(known).await == 1).await;
}

const GATE: &str = "select from queue.limiter for update";

#[tokio::test]
#[ignore = "deep"]
async fn jobs_that_a_limit_does_not_cover_end_while_its_limiter_is_locked() {
    let db = TestDb::new().await;
    db.run_while(worker(&db), async {
        limited(&db, "type:until_go").await;
        db.pool.execute("create table go ()").await.unwrap();
        let first = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
        db.until(first, JobState::Completed).await;
        let mut holder = holder(&db, GATE).await;
        let waits = UntilGo {}.enqueue(&db.pool).await.unwrap().id();
        let claims = "select count(*) from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and application_name = 'queue-worker limits'";
        // A blocked claim times out, and the worker then sends the next claim. Jobs without the limit finish while either claim waits.
        for claim in ["a claim waits", "the next claim waits"] {
            eventually(claim, async || db.count(claims).await == 1).await;
            others_end(&db).await;
            eventually("it has given up", async || db.count(claims).await == 0).await;
        }
        assert_eq!(db.state(waits).await, Some(JobState::Ready));
        run(&mut holder, "rollback").await;
        db.until(waits, JobState::Completed).await;
    })
    .await;
    db.finish().await;
}

/// Job that waits for the table `go` and then closes the limit of its type for ten minutes with `slow_down`.
#[job(name = "held_refused")]
#[derive(Serialize, Deserialize)]
struct Refused;

impl Handler for Refused {
    async fn run(self, cx: &Context) -> JobResult {
        tests::record(cx).await?;
        tests::hold(cx.pool()).await;
        Err(Failure::slow_down(Duration::from_mins(10), "429"))
    }
}

#[tokio::test]
async fn a_limit_that_cannot_be_slowed_down_while_its_limiter_is_locked_is_slowed_down_later() {
    let db = TestDb::new().await;
    db.run_while(worker(&db), async {
        limited(&db, "type:held_refused").await;
        let refused = Refused.enqueue(&db.pool).await.unwrap().id();
        eventually("it runs", async || db.count("select count(*) from effect").await == 1).await;
        let mut holder = holder(&db, GATE).await;
        db.pool.execute("create table go ()").await.unwrap();
        db.until(refused, JobState::Scheduled).await;
        others_end(&db).await;
        run(&mut holder, "rollback").await;
        let slow = "select count(*) from queue.limiter where not_before > now() + interval '5 minutes'";
        eventually("it is slowed down", async || db.count(slow).await == 1).await;
    })
    .await;
    db.finish().await;
}
