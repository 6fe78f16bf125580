//! Tests durable jobs. A step takes effect once, regardless of how its attempt ends. A job that sleeps or waits for a signal holds no
//! resources. An attempt that has lost its lease journals nothing.

mod children;
mod deploys;
mod ends;
pub(crate) mod family;
mod faults;
mod inline;
mod map;
mod plans;
mod restart;
mod revision;
mod signals;
mod sleep;
mod statements;

use std::time::Duration;

use queue_core::{
    Context, Failure, Handler, Job as _, JobId, JobResult, JobState, JobType, durable::Durable, job, options::Options, registry::Registry,
};
use serde::{Deserialize, Serialize};
use sqlx::{Postgres, pool::PoolConnection};
use tests::TestDb;

/// Durable job that runs the parts of its plan one after the other.
#[job(name = "durable_plan", durable, max_attempts = 2, backoff = fixed("1ms"), output = Vec<String>)]
#[derive(Serialize, Deserialize)]
pub(crate) struct Plan {
    parts: Vec<Part>,
}

/// Part of a plan.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Runs a step that records an effect and returns its own name.
    Step(String),
    /// Like `Step`, but the effect and the journal entry are committed in one transaction.
    StepTx(String),
    /// Like `StepTx`, but the step fails after its effect, so the transaction is rolled back.
    Undone(String),
    /// Runs this number of steps concurrently.
    Many(u32),
    /// Journals this step and fails the attempt, unless the step is already journaled.
    FailOnce(String),
    /// Fails every attempt that reaches this part.
    Fail(String),
    Panic,
    Sleep(String, u64),
    /// Races a sleep against a future that takes longer. The end of the sleep cancels the future.
    Race(u64),
    /// Runs a sleep concurrently with a step.
    Beside(u64),
    /// Runs a sleep concurrently with several queries and a step that follows the queries.
    Slow(u64),
    /// Receives a signal with this name.
    Receive(String),
    /// Receives this number of signals with this name, one after the other.
    Votes(String, u32),
    /// Receives this number of signals with this name, concurrently.
    Ballot(String, u32),
    /// Receives a signal with this name, with a timeout in ms.
    Within(String, u64),
    /// Waits for two signals, and receives the signal that arrives first.
    Either(String, String),
    /// Receives a signal concurrently with a step that takes this number of ms.
    During(String, u64),
    /// Runs a step that returns a number. One test first journals a text for the step, as an earlier release could have done.
    Number(String),
}

/// Records the effect `what` together with the attempt number.
async fn effect(cx: &Durable, what: &str) -> Result<String, sqlx::Error> {
    let statement = sqlx::query("insert into done_by (job, what, attempt) values ($1, $2, $3)").bind(cx.id()).bind(what);
    statement.bind(i64::from(cx.attempt())).execute(cx.pool()).await?;
    Ok(what.to_owned())
}

async fn effect_on(on: &mut sqlx::PgConnection, job: JobId, what: &str) -> Result<String, sqlx::Error> {
    sqlx::query("insert into done_by (job, what, attempt) values ($1, $2, 0)").bind(job).bind(what).execute(on).await?;
    Ok(what.to_owned())
}

impl Handler for Plan {
    async fn run(self, cx: &Durable) -> JobResult<Vec<String>> {
        let mut results = Vec::new();
        for part in self.parts {
            match part {
                Part::Step(name) => results.push(cx.step(name.as_str(), effect(cx, &name)).await?),
                Part::StepTx(name) => results.push(cx.step_tx(name.as_str(), async |tx| effect_on(tx, cx.id(), &name).await).await?),
                Part::Undone(name) => {
                    let undone = async |tx: &mut sqlx::PgConnection| {
                        effect_on(tx, cx.id(), &name).await?;
                        Err::<(), Failure>("as told".into())
                    };
                    cx.step_tx(name.as_str(), undone).await?;
                }
                Part::Many(count) => {
                    let steps = (0..count).map(|n| cx.step(("many", n), async move { Ok::<_, Failure>(n) }));
                    let numbers = futures_util::future::try_join_all(steps).await?;
                    results.push(format!("{}", numbers.iter().sum::<u32>()));
                }
                Part::FailOnce(name) if !cx.journaled(name.as_str()) => {
                    cx.step(name.as_str(), async { Ok::<_, Failure>(()) }).await?;
                    return Err("as told".into());
                }
                Part::FailOnce(_) => {}
                Part::Fail(text) => return Err(text.into()),
                Part::Panic => panic!("as told"),
                Part::Sleep(name, ms) => cx.sleep(name.as_str(), Duration::from_millis(ms)).await,
                Part::Race(ms) => tokio::select! {
                    () = cx.sleep("race", Duration::from_millis(ms)) => results.push("slept".to_owned()),
                    () = tokio::time::sleep(Duration::from_hours(1)) => {}
                },
                Part::Beside(ms) => {
                    let step = cx.step("beside", async {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        effect(cx, "beside").await
                    });
                    let ((), done) = tokio::join!(cx.sleep("besides", Duration::from_millis(ms)), step);
                    results.push(done?);
                }
                Part::Slow(ms) => {
                    let other = async {
                        for _ in 0..5 {
                            sqlx::query("select pg_sleep(0.01)").execute(cx.pool()).await?;
                        }
                        cx.step("welcome", effect(cx, "welcome")).await
                    };
                    let ((), done) = tokio::join!(cx.sleep("slow", Duration::from_millis(ms)), other);
                    results.push(done?);
                }
                Part::Receive(_) | Part::Votes(..) | Part::Ballot(..) | Part::Within(..) | Part::Either(..) | Part::During(..) => {
                    receive_signals(cx, part, &mut results).await?;
                }
                Part::Number(name) => {
                    cx.step(name.as_str(), async { Ok::<_, Failure>(7_i64) }).await?;
                }
            }
        }
        Ok(results)
    }
}

/// Runs a part that waits for signals.
async fn receive_signals(cx: &Durable, part: Part, results: &mut Vec<String>) -> JobResult {
    match part {
        Part::Receive(name) => results.push(cx.receive(name.as_str()).await),
        Part::Votes(name, count) => {
            for n in 0..count {
                results.push(cx.receive((name.as_str(), n)).await);
            }
        }
        Part::Ballot(name, count) => {
            let votes = (0..count).map(|n| cx.receive::<String>((name.as_str(), n)).into_future());
            results.extend(futures_util::future::join_all(votes).await);
        }
        Part::Within(name, ms) => {
            let come: Option<String> = cx.receive(name.as_str()).timeout(Duration::from_millis(ms)).await;
            results.push(come.unwrap_or("none".to_owned()));
        }
        Part::Either(one, other) => {
            let (one, other) = (cx.receive(one.as_str()).into_future(), cx.receive(other.as_str()).into_future());
            tokio::select! {
                biased;
                come = one => results.push(come),
                come = other => results.push(come),
            }
        }
        Part::During(name, ms) => {
            let step = cx.step("long", async {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                effect(cx, "long").await
            });
            let come = async {
                let come: String = cx.receive(name.as_str()).await;
                effect(cx, &come).await
            };
            let (come, done) = tokio::join!(come, step);
            results.extend([come?, done?]);
        }
        _ => {}
    }
    Ok(())
}

pub(crate) async fn db() -> TestDb {
    let db = TestDb::new().await;
    db.run("create table done_by (job bigint, what text, attempt bigint)").await;
    db
}

/// Creates a database and takes a connection from its pool.
async fn db_by_hand() -> (TestDb, PoolConnection<Postgres>) {
    let db = db().await;
    let on = db.pool.acquire().await.unwrap();
    (db, on)
}

pub(crate) fn plan(parts: impl IntoIterator<Item = Part>) -> Plan {
    Plan { parts: parts.into_iter().collect() }
}

fn step(name: &str) -> Part {
    Part::Step(name.to_owned())
}

/// Returns the recorded effects of a job with their attempt numbers.
async fn done(db: &TestDb, job: JobId) -> Vec<(String, i64)> {
    let statement = sqlx::query_as("select what, attempt from done_by where job = $1 order by what, attempt").bind(job);
    statement.fetch_all(&db.pool).await.unwrap()
}

/// Returns the names of the job's journaled steps.
async fn journal(db: &TestDb, job: JobId) -> Vec<String> {
    db.all(&format!("select name from queue.step where id = {job} order by name")).await
}

async fn run_to(db: &TestDb, job: JobId, state: JobState) {
    db.run_while(db.worker().register::<Plan>(), async { db.until(job, state).await }).await;
}

fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(what, attempt)| ((*what).to_owned(), *attempt)).collect()
}

#[tokio::test]
async fn a_job_without_progress_is_dead_after_its_attempts_which_are_reset_by_a_requeue() {
    let db = db().await;
    let parts = [step("a"), Part::FailOnce("x".into()), Part::Fail("for ever".into())];
    let job = plan(parts).enqueue(&db.pool).await.unwrap().id();
    let attempts = format!("select attempts::bigint from queue.dead where id = {job}");
    // Before the second requeue, all steps are changed as if attempt 200 had journaled them. The requeue must reset the number of
    // attempts nevertheless.
    for late in ["", "update queue.step set attempt = 200"] {
        run_to(&db, job, JobState::Dead).await;
        assert_eq!((db.count(&attempts).await, done(&db, job).await), (2, pairs(&[("a", 1)])), "what is done stays done");
        db.run(&format!("{late}; select queue.requeue({job})")).await;
    }
    run_to(&db, job, JobState::Dead).await;
    assert_eq!((db.count(&attempts).await, done(&db, job).await), (2, pairs(&[("a", 1)])), "as many as its type has");
    db.finish().await;
}

#[tokio::test]
async fn a_step_whose_type_has_changed_is_an_error_of_the_attempt() {
    let db = db().await;
    let job = plan([Part::FailOnce("x".into()), Part::Number("a".into())]).enqueue(&db.pool).await.unwrap().id();
    db.run(&format!("insert into queue.step (id, name, attempt, at, ran_ms, output) values ({job}, 'a', 1, now(), 0, '\"text\"')")).await;
    run_to(&db, job, JobState::Dead).await;
    let errors: Vec<String> = db.all(&format!("select error from queue.failure where id = {job} order by attempt")).await;
    assert_eq!(errors.len(), 2, "it was tried again: {errors:?}");
    assert!(errors[1].contains("does not fit the type `i64`") && !errors[1].contains("text"), "{errors:?}");
    db.finish().await;
}

#[tokio::test]
async fn a_requeued_completed_job_starts_again_and_a_deleted_one_has_no_steps() {
    let db = db().await;
    let job = plan([step("a"), Part::FailOnce("x".into())]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, job, JobState::Completed).await;
    db.run(&format!("select queue.requeue({job})")).await;
    assert_eq!(journal(&db, job).await, [""; 0]);
    run_to(&db, job, JobState::Completed).await;
    assert_eq!(done(&db, job).await.len(), 2);
    for gone in ["delete from queue.done where id = $1", "delete from queue.job where id = $1"] {
        sqlx::query(gone).bind(job).execute(&db.pool).await.unwrap();
    }
    db.run("select queue.prune_steps(0, 1000)").await;
    assert_eq!(journal(&db, job).await, [""; 0]);
    db.finish().await;
}

#[tokio::test]
async fn a_dead_letter_is_discarded_with_its_steps_and_others_keep_theirs() {
    let db = db().await;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let job = plan([step("a"), Part::Fail("for ever".into())]).enqueue(&db.pool).await.unwrap().id();
        run_to(&db, job, JobState::Dead).await;
        jobs.push(job);
    }
    let alive = plan([step("a"), Part::Sleep("trial".into(), 3_600_000)]).enqueue(&db.pool).await.unwrap().id();
    run_to(&db, alive, JobState::Scheduled).await;
    sqlx::query("select queue.discard_all($1)").bind(vec![jobs[0], alive]).execute(&db.pool).await.unwrap();
    let steps = [journal(&db, jobs[0]).await.len(), journal(&db, jobs[1]).await.len(), journal(&db, alive).await.len()];
    assert_eq!(steps, [0, 1, 2]);
    db.finish().await;
}

/// Defines job types without the `job` macro, with options that the macro would reject.
macro_rules! by_hand {
    ($($name:ident, $cx:ty: $options:expr;)*) => {
        $(
            #[derive(Serialize, Deserialize)]
            struct $name;

            impl JobType for $name {
                type Output = ();
                type Cx = $cx;
                const OPTIONS: Options = $options;
            }

            impl Handler for $name {
                async fn run(self, _: &$cx) -> JobResult {
                    Ok(())
                }
            }
        )*
    };
}

by_hand! {
    NotSaid, Durable: Options::new("not_said");
    NotTaken, Context: Options::new("not_taken").durable();
    Both, Durable: Options::new("both").durable().transactional();
}

#[test]
fn a_registry_refuses_a_partly_durable_type() {
    let registries = [Registry::new().register::<NotSaid>(), Registry::new().register::<NotTaken>(), Registry::new().register::<Both>()];
    for refused in registries {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("`durable`"), "{why}");
    }
}
