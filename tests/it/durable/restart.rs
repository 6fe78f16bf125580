//! Tests restarted jobs. The same job continues with another payload and an empty journal. A restart is atomic.

mod kept;
mod kit;
mod statements;

use std::future::pending;

use queue_core::{Handler, Job as _, JobHandle, JobId, JobResult, JobState, Queue, durable::Durable, job};
use serde::{Deserialize, Serialize};
use tests::{Laps, TestDb, kill_three};

use super::{db, db_by_hand, done, effect, journal, pairs, plan};

/// Durable job that performs the act of its round and restarts with the next round, until the last round completes.
#[job(name = "durable_round", durable, max_attempts = 2, backoff = fixed("1ms"), output = Vec<String>)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) last: u32,
    pub(super) act: Act,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Act {
    /// Fails after the step on the first attempt of each round.
    FailFirst,
    /// Receives a signal.
    Receive,
    /// Spawns a child in the first round without waiting for it. Later rounds wait for a signal.
    Spawn,
    /// Restarts while concurrent futures are pending forever.
    Beside,
    /// Restarts with a payload of another type.
    Other,
    /// Restarts with a payload that is too large to store.
    TooLarge(String),
}

impl Handler for Round {
    async fn run(self, cx: &Durable) -> JobResult<Vec<String>> {
        let mut results = vec![cx.step("work", effect(cx, &format!("round {}", self.number))).await?];
        match &self.act {
            Act::FailFirst if cx.attempt() == 1 => return Err("as told".into()),
            Act::Spawn if self.number == 1 => drop(cx.spawn("child", Round { act: Act::FailFirst, ..self.clone() }).queue("nobody").await?),
            Act::Receive | Act::Spawn => results.push(cx.receive("go").await),
            Act::FailFirst | Act::Beside | Act::Other | Act::TooLarge(_) => {}
        }
        if self.number == self.last {
            return Ok(results);
        }
        let next = Self { number: self.number + 1, ..self };
        match next.act.clone() {
            Act::Other => cx.restart(plan([])).await,
            Act::TooLarge(text) => cx.restart(Self { act: Act::TooLarge(text.repeat(300_000)), ..next }).await,
            Act::Beside => {
                let step = cx.step("beside", pending::<Result<(), std::fmt::Error>>());
                tokio::join!(async { cx.restart(next).await }, step, pending::<()>());
                Ok(results)
            }
            _ => cx.restart(next).await,
        }
    }
}

pub(super) fn rounds(last: u32, act: Act) -> Round {
    Round { number: 1, last, act }
}

async fn run_to(db: &TestDb, job: JobId, state: JobState) {
    db.run_while(db.worker().register::<Round>(), db.until(job, state)).await;
}

async fn payload(db: &TestDb, job: JobId) -> serde_json::Value {
    db.one(&format!("select payload from queue.job where id = {job}")).await
}

#[tokio::test]
async fn each_round_begins_with_an_empty_journal_and_all_its_attempts_and_the_job_stays_the_same() {
    let db = db().await;
    let job = rounds(3, Act::FailFirst).enqueue(&db.pool).key("k").meta("tenant", "t").await.unwrap().id();
    let behind = rounds(1, Act::Beside).enqueue(&db.pool).key("k").await.unwrap().id();
    run_to(&db, behind, JobState::Completed).await;
    // Each round used both permitted attempts, and the second attempt found the step of the first attempt in the journal.
    assert_eq!(done(&db, job).await, pairs(&[("round 1", 1), ("round 2", 1), ("round 3", 1)]));
    assert_eq!((db.output(job).await, journal(&db, job).await), (serde_json::json!(["round 3"]), vec!["work".to_owned()]));
    assert_eq!(db.count("select attempts::bigint from queue.done where output = '[\"round 3\"]'").await, 2);
    assert_eq!(db.count("select count(*) from queue.failure").await, 3);
    assert_eq!(payload(&db, job).await["number"], 3);
    let overtook = "select count(*) from queue.done d join queue.done b on b.finished_at < d.finished_at
        where d.output = '[\"round 3\"]' and b.output = '[\"round 1\"]'";
    assert_eq!(db.count(overtook).await, 0, "it kept its ordering key from round to round");
    let meta = format!("select count(*) from queue.job where id = {job} and meta = '{{\"tenant\": \"t\"}}'");
    assert_eq!(db.count(&meta).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn unreceived_signals_stay_and_received_ones_do_not_return() {
    let db = db().await;
    let job = rounds(3, Act::Receive).enqueue(&db.pool).await.unwrap();
    for text in ["first", "second", "third", "fourth"] {
        let _ = job.signal(&db.pool, "go", text).await.unwrap();
    }
    run_to(&db, job.id(), JobState::Completed).await;
    assert_eq!(db.output(job.id()).await, serde_json::json!(["round 3", "third"]));
    assert_eq!(Queue::new(&db.pool).job(job.id()).signals().await.unwrap().len(), 1);
    db.finish().await;
}

#[tokio::test]
async fn children_of_a_restarted_job_continue_without_a_parent() {
    let db = db().await;
    let job = rounds(2, Act::Spawn).enqueue(&db.pool).await.unwrap();
    let children = async || Queue::new(&db.pool).job(job.id()).children().await.unwrap();
    let child = db
        .run_while(db.worker().register::<Round>().queue("default", 4), async {
            db.until(job.id(), JobState::Parked).await;
            assert_eq!(children().await.len(), 0);
            let of = sqlx::query_scalar("select id from queue.jobs where queue = 'nobody'").fetch_one(&db.pool);
            let child: JobId = of.await.unwrap();
            job.cancel(&db.pool).await.unwrap();
            assert_eq!(db.state(child).await, Some(JobState::Ready), "it is not cancelled with what was its parent");
            child
        })
        .await;
    db.run_while(db.worker().register::<Round>().queue("nobody", 4), db.until(child, JobState::Completed)).await;
    assert_eq!(db.count("select (select count(*) from queue.child) + (select count(*) from queue.signal_hint)").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn concurrent_futures_of_a_restart_are_dropped() {
    let db = db().await;
    let job = rounds(2, Act::Beside).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Completed).await;
    assert_eq!(db.output(job).await, serde_json::json!(["round 2"]));
    db.finish().await;
}

#[tokio::test]
async fn a_payload_that_cannot_be_stored_or_of_another_type_ends_the_job() {
    let db = db().await;
    for (act, why) in [(Act::Other, "cannot restart as a job of the type `durable_plan`"), (Act::TooLarge("x".to_owned()), "262144")] {
        let job = rounds(2, act).enqueue(&db.pool).await.unwrap().id();
        run_to(&db, job, JobState::Dead).await;
        let (attempts, error): (i16, String) =
            sqlx::query_as("select attempts, error from queue.dead where id = $1").bind(job).fetch_one(&db.pool).await.unwrap();
        assert!(attempts == 1 && error.contains(why), "{attempts}: {error}");
        assert_eq!(payload(&db, job).await["number"], 1);
    }
    db.finish().await;
}

#[tokio::test]
async fn the_job_with_the_most_steps_is_warned_about() {
    let db = db().await;
    let job = rounds(1, Act::Beside).enqueue(&db.pool).await.unwrap().id();
    let many = "insert into queue.step (id, name, attempt, at, ran_ms) select j.id, 's' || n, 1, now(), 0
        from queue.job j, generate_series(1, 10000) n";
    db.run(many).await;
    run_to(&db, job, JobState::Dead).await;
    let error = db.dead_error(job).await;
    assert!(error.contains("10,000 steps") && error.contains("cx.restart"), "{error}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn killed_workers_lose_and_double_no_round() {
    const JOBS: i64 = 20;
    const LAST: i32 = 12;
    let db = TestDb::new().await;
    for _ in 0..JOBS {
        Laps { lap: 1, last: LAST, ms: 10 }.enqueue(&db.pool).await.unwrap();
    }
    let ended = "select count(*) from queue.done where output = to_jsonb(12)";
    let progress = ("select count(*) from effect", 50);
    kill_three(&db, env!("CARGO_BIN_EXE_test-worker"), progress, (ended, JOBS)).await;
    let once = "select count(*) from (select job, attempt from effect group by job, attempt having count(*) = 1) e";
    assert_eq!((db.count(once).await, db.count("select count(*) from effect").await), (JOBS * 12, JOBS * 12));
    assert_eq!(db.count("select count(*) from queue.step").await, JOBS, "of the last round of each");
    db.finish().await;
}

/// Creates a job under a lease. Returns the job and the lease token.
async fn leased(db: &TestDb) -> (JobHandle<super::Plan>, uuid::Uuid) {
    super::signals::races::leased(db).await
}
