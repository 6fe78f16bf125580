//! Workers that are killed between a step's effect and its journal, and commits whose answers are lost: what is committed with its journal happens
//! once, what is beside it happens again only while it was under way.

use std::time::Duration;

use queue_core::{Durable, Handler, Job as _, JobId, JobResult, JobState, job};
use queue_worker::Worker;
use sqlx::Executor as _;
use tests::{Cut, Proxy, Stages, TestDb, WorkerProcess, eventually, within};

use super::{Part, Plan, db, done, pairs, plan};

fn start(db: &TestDb) -> WorkerProcess {
    WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("TTL_MS", "1000"), ("CONCURRENCY", "10")])
}

#[tokio::test]
async fn workers_that_are_killed_again_and_again_double_no_effect_that_is_committed_with_its_step() {
    const JOBS: i64 = 40;
    const STAGES: i32 = 12;
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        jobs.push(Stages { stages: STAGES, ms: 15 }.enqueue(&db.pool).await.unwrap().id());
    }
    let mut kills = 0;
    while db.count("select count(*) from queue.done").await < JOBS {
        let steps = db.count("select count(*) from queue.step").await;
        let process = start(&db);
        // The third would make a dead letter of a job that was met each time.
        if kills < 2 {
            eventually("it goes forward", async || db.count("select count(*) from queue.step").await > steps + 100).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..40))).await;
        } else {
            within(Duration::from_mins(1), "all are over", async || db.count("select count(*) from queue.done").await == JOBS).await;
        }
        process.kill();
        kills += 1;
    }
    let within_once =
        "select count(*) from (select job, attempt from effect where attempt < 1000 group by job, attempt having count(*) = 1) e";
    assert_eq!(db.count(within_once).await, JOBS * i64::from(STAGES), "each exactly once");
    let beside = "select count(*) from effect where attempt >= 1000";
    let (repeated, at_once) = (db.count(beside).await - JOBS * i64::from(STAGES), 10);
    assert!((0..=kills * at_once).contains(&repeated), "{repeated} were under way at {kills} kills");
    let sums = db.count("select count(*) from queue.done where output = to_jsonb(66)").await;
    assert_eq!((sums, db.count("select count(*) from queue.dead").await), (JOBS, 0));
    db.finish().await;
}

fn behind(proxy: &Proxy) -> Worker {
    Worker::new(proxy.pool.clone()).register::<Plan>().queue("default", 4)
}

async fn errors(db: &TestDb, job: JobId) -> i64 {
    sqlx::query_scalar("select count(*) from queue.failure where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_commit_of_a_step_whose_answer_is_lost_is_asked_after() {
    for (cut, failures) in [(Cut::After, 0), (Cut::Before, 1)] {
        let db = db().await;
        let proxy = Proxy::start(&db.url, cut, 1);
        let job = plan([Part::StepTx("a".into()), Part::StepTx("b".into())]).enqueue(&db.pool).await.unwrap().id();
        db.run_while(behind(&proxy), db.until(job, JobState::Completed)).await;
        assert_eq!((proxy.cuts(), errors(&db, job).await), (1, failures), "{cut:?}");
        assert_eq!(done(&db, job).await, pairs(&[("a", 0), ("b", 0)]));
        proxy.pool.close().await;
        db.finish().await;
    }
}

/// Its step is journaled by somebody else while its work is done, as one whose answer was lost before it was said again.
#[job(durable, max_attempts = 1)]
#[derive(serde::Serialize, serde::Deserialize)]
struct SaidTwice {
    within: bool,
}

impl Handler for SaidTwice {
    async fn run(self, cx: &Durable) -> JobResult {
        let first = "insert into queue.step (id, name, attempt, at, ran_ms, output) values ($1, 'a', 1, now(), 0, '1')";
        let first = sqlx::query(first).bind(cx.id());
        if self.within {
            cx.step_tx("a", async |tx| first.execute(tx).await.map(|_| 2)).await?;
        } else {
            cx.step("a", async { first.execute(cx.pool()).await.map(|_| 2) }).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_step_that_is_said_twice_is_as_it_was_said_first_and_one_in_a_transaction_is_undone() {
    let db = TestDb::new().await;
    for (within, state, kept) in [(false, JobState::Completed, 1), (true, JobState::Dead, 0)] {
        let job = SaidTwice { within }.enqueue(&db.pool).await.unwrap().id();
        db.run_while(db.worker().register::<SaidTwice>(), db.until(job, state)).await;
        let first = sqlx::query_scalar("select count(*) from queue.step where id = $1 and output = '1'").bind(job);
        let first: i64 = first.fetch_one(&db.pool).await.unwrap();
        assert_eq!(first, kept, "within: {within}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_step_in_a_transaction_of_an_attempt_that_has_lost_its_job_is_rolled_back() {
    let db = TestDb::new().await;
    let job = Stages { stages: 2, ms: 60_000 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Stages>(), async {
        eventually("the first stage is over", async || db.count("select count(*) from queue.step").await == 2).await;
    })
    .await;
    let one = "select count(*) from effect where attempt = 0";
    assert_eq!(db.count(one).await, 1);
    // It was given back by the end of the worker; whoever has a token of before writes nothing.
    db.pool.execute("update queue.scheduled set run_at = now()").await.unwrap();
    let quick = "update queue.job set payload = payload || '{\"ms\": 1}'";
    db.pool.execute(quick).await.unwrap();
    db.run_while(db.worker().register::<Stages>(), db.until(job, JobState::Completed)).await;
    assert_eq!((db.count(one).await, db.count("select count(*) from effect").await), (1, 4));
    db.finish().await;
}
