//! Tests workers that are killed between a step's effect and its journal entry, and commits whose replies are lost. An effect in the
//! transaction of its journal entry happens once. An effect outside of this transaction is repeated only if the step was in progress.

use queue_core::{Failure, Handler, Job as _, JobId, JobResult, JobState, durable::Durable, job};
use queue_worker::Worker;
use tests::{Cut, Proxy, Stages, TestDb, kill_three};
use tokio::sync::Barrier;

use super::{Part, Plan, db, done, pairs, plan};

/// Number of jobs per round.
const JOBS: i64 = 40;
const STAGES: i32 = 12;

#[tokio::test]
#[ignore = "deep"]
async fn repeated_kills_double_no_effect_that_is_committed_with_its_step() {
    // `QUEUE_TEST_STEPS` sets the minimum number of steps, for example 20000.
    let steps: i64 = std::env::var("QUEUE_TEST_STEPS").ok().and_then(|value| value.parse().ok()).unwrap_or(1);
    let (mut done, mut repeated) = (0, 0);
    while done < steps {
        repeated += kill_again_and_again().await;
        done += JOBS * i64::from(STAGES);
    }
    println!("{done} steps with their effects, each once; {repeated} outside of them done again");
}

/// Kills workers repeatedly. Returns the number of repeated effects that were outside of a transaction.
async fn kill_again_and_again() -> i64 {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        jobs.push(Stages { stages: STAGES, ms: 15 }.enqueue(&db.pool).await.unwrap().id());
    }
    let progress = ("select count(*) from queue.step", 100);
    kill_three(&db, env!("CARGO_BIN_EXE_test-worker"), progress, ("select count(*) from queue.done", JOBS)).await;
    let within_once =
        "select count(*) from (select job, attempt from effect where attempt < 1000 group by job, attempt having count(*) = 1) e";
    assert_eq!(db.count(within_once).await, JOBS * i64::from(STAGES), "each exactly once");
    let beside = "select count(*) from effect where attempt >= 1000";
    let repeated = db.count(beside).await - JOBS * i64::from(STAGES);
    assert!((0..=3 * 10).contains(&repeated), "{repeated} were under way at three kills");
    let sums = db.count("select count(*) from queue.done where output = to_jsonb(66)").await;
    assert_eq!((sums, db.count("select count(*) from queue.dead").await), (JOBS, 0));
    db.finish().await;
    repeated
}

fn behind(proxy: &Proxy) -> Worker {
    Worker::new(proxy.pool.clone()).register::<Plan>().queue("default", 4)
}

async fn errors(db: &TestDb, job: JobId) -> i64 {
    db.one(&format!("select count(*) from queue.failure where id = {job}")).await
}

#[tokio::test]
async fn a_commit_of_a_step_whose_reply_is_lost_is_resolved() {
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

/// Durable job whose step is journaled by another session while the step is running, as if the reply to a first commit had been lost.
#[job(durable, max_attempts = 1)]
#[derive(serde::Serialize, serde::Deserialize)]
struct SaidTwice {
    within: bool,
    /// Number of other steps that end at the same time.
    beside: usize,
}

impl Handler for SaidTwice {
    async fn run(self, cx: &Durable) -> JobResult {
        let first = "insert into queue.step (id, name, attempt, at, ran_ms, output) values ($1, 'a', 1, now(), 0, '1')";
        let first = sqlx::query(first).bind(cx.id());
        let all = Barrier::new(self.beside + 1);
        if self.within {
            cx.step_tx("a", async |tx| first.execute(tx).await.map(|_| 2)).await?;
            return Ok(());
        }
        let a = cx.step("a", async {
            let done = first.execute(cx.pool()).await.map(|_| 2);
            all.wait().await;
            done
        });
        let others = (0..self.beside).map(|n| {
            let all = &all;
            cx.step(("b", n), async move {
                all.wait().await;
                Ok::<_, Failure>(n)
            })
        });
        let (a, others) = tokio::join!(a, futures_util::future::join_all(others));
        a?;
        others.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(())
    }
}

#[tokio::test]
async fn a_step_journaled_twice_keeps_its_first_output_and_one_in_a_transaction_is_rolled_back() {
    let db = TestDb::new().await;
    for (within, beside, state, kept) in
        [(false, 0, JobState::Completed, 1), (false, 30, JobState::Completed, 1), (true, 0, JobState::Dead, 0)]
    {
        let job = SaidTwice { within, beside }.enqueue(&db.pool).await.unwrap().id();
        db.run_while(db.worker().register::<SaidTwice>(), db.until(job, state)).await;
        let first = sqlx::query_scalar("select count(*) from queue.step where id = $1 and name = 'a' and output = '1'").bind(job);
        let first: i64 = first.fetch_one(&db.pool).await.unwrap();
        assert_eq!(first, kept, "within: {within}");
        let others = sqlx::query_scalar("select count(*) from queue.step where id = $1 and name like 'b/%'").bind(job);
        let others: i64 = others.fetch_one(&db.pool).await.unwrap();
        assert_eq!(others, beside as i64);
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_step_in_a_transaction_of_an_attempt_that_has_lost_its_job_is_rolled_back() {
    let db = TestDb::new().await;
    let job = Stages { stages: 2, ms: 60_000 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Stages>(), async {
        db.until_count("select count(*) from queue.step", 2).await;
    })
    .await;
    let one = "select count(*) from effect where attempt = 0";
    assert_eq!(db.count(one).await, 1);
    // The stopping worker has released the job, so the interrupted attempt can write nothing with the old lease token.
    db.run("update queue.scheduled set run_at = now()").await;
    let quick = "update queue.job set payload = payload || '{\"ms\": 1}'";
    db.run(quick).await;
    db.run_while(db.worker().register::<Stages>(), db.until(job, JobState::Completed)).await;
    assert_eq!((db.count(one).await, db.count("select count(*) from effect").await), (1, 4));
    db.finish().await;
}
