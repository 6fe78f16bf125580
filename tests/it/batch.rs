//! Tests batch handlers. The result that a handler sets for a job is final, and a failing job does not fail the other jobs.

mod attempts;
mod inline;
mod slots;

use std::time::Duration;

use queue_core::{Job as _, JobId, JobState};
use queue_worker::Worker;
use tests::{Batched, Part, TestDb, WorkerProcess, eventually, within};

fn worker(db: &TestDb) -> Worker {
    db.worker().register_batch::<Batched>()
}

async fn enqueue(db: &TestDb, parts: Vec<Part>) -> Vec<JobId> {
    Batched::enqueue_all(parts.into_iter().map(|part| Batched { part }), &db.pool).await.unwrap();
    sqlx::query_scalar("select id from queue.job order by id").fetch_all(&db.pool).await.unwrap()
}

/// Returns the number of handler calls.
async fn calls(db: &TestDb) -> i64 {
    db.count("select count(distinct xmin::text) from effect").await
}

async fn in_state(db: &TestDb, state: &str) -> i64 {
    db.count(&format!("select count(*) from queue.jobs where state = '{state}'")).await
}

async fn wait_until_finished(db: &TestDb, jobs: i64) {
    let are_finished = async || in_state(db, "completed").await + in_state(db, "dead").await == jobs;
    within(Duration::from_mins(1), "all have finished", are_finished).await;
}

/// Runs 500 jobs, one of them with the action `part`. Checks that only this job becomes a dead letter, after at most 25 handler calls.
async fn one_among_500(part: Part) {
    let db = TestDb::new().await;
    let mut parts = vec![Part::Rest; 500];
    parts[321] = part.clone();
    let jobs = enqueue(&db, parts).await;
    db.run_while(worker(&db), async {
        wait_until_finished(&db, 500).await;
    })
    .await;
    assert_eq!(in_state(&db, "completed").await, 499, "no innocent one is dead");
    assert_eq!(db.state(jobs[321]).await, Some(JobState::Dead));
    let calls = calls(&db).await;
    println!("{part:?}: {calls} calls");
    assert!(calls <= 25, "{calls} calls");
    let together = "select count(*) from effect e where attempt = 5 and (select count(*) from effect o where o.xmin = e.xmin) > 1";
    assert_eq!(db.count(together).await, 0, "the last attempt is each one's own");
    db.finish().await;
}

#[tokio::test]
async fn one_job_that_makes_a_batch_of_500_fail_fails_alone_within_25_calls() {
    one_among_500(Part::Error).await;
}

#[tokio::test]
async fn one_job_that_makes_a_batch_of_500_panic_fails_alone_within_25_calls() {
    one_among_500(Part::Panic).await;
}

#[tokio::test]
async fn one_job_with_a_terminal_error_for_500_fails_alone_within_25_calls() {
    let db = TestDb::new().await;
    let mut parts = vec![Part::Rest; 500];
    parts[7] = Part::Terminal;
    let jobs = enqueue(&db, parts).await;
    db.run_while(worker(&db), async {
        wait_until_finished(&db, 500).await;
    })
    .await;
    assert_eq!((in_state(&db, "completed").await, db.state(jobs[7]).await), (499, Some(JobState::Dead)));
    assert!(calls(&db).await <= 25);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn one_job_that_ends_its_process_fails_no_other() {
    let db = TestDb::new().await;
    let mut parts = vec![Part::Rest; 100];
    parts[50] = Part::Abort;
    let jobs = enqueue(&db, parts).await;
    let start = || WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[]);
    let mut process = start();
    let mut ended = 0;
    within(Duration::from_mins(1), "all have finished", async || {
        if process.has_ended() {
            db.expire_worker(&process).await;
            (process, ended) = (start(), ended + 1);
        }
        in_state(&db, "completed").await + in_state(&db, "dead").await == 100
    })
    .await;
    assert!(ended >= 2, "only {ended} processes were ended before the last");
    assert_eq!((in_state(&db, "completed").await, db.state(jobs[50]).await), (99, Some(JobState::Dead)));
    let together = "select count(*) from effect e where attempt > 1 and (select count(*) from effect o where o.xmin = e.xmin) > 1";
    assert_eq!(db.count(together).await, 0, "after a crash each runs alone");
    let whole = "select count(distinct xmin::text) from effect where attempt = 1";
    assert_eq!(db.count(whole).await, 1, "the first time all ran together");
    drop(process);
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn results_of_jobs_stay_however_the_batch_ends() {
    for end in [Part::Rest, Part::Error, Part::Panic, Part::Hang] {
        let db = TestDb::new().await;
        let parts = [Part::Complete, Part::Dead, Part::First(Box::new(Part::Fail)), Part::Snooze(20)];
        let first = Part::First(Box::new(end.clone()));
        let jobs = enqueue(&db, [parts.as_slice(), &[first, Part::Rest]].concat()).await;
        db.run_while(worker(&db), async {
            wait_until_finished(&db, 6).await;
        })
        .await;
        let attempts: Vec<(String, i16, i64)> = sqlx::query_as(
            "select j.state, j.attempts::smallint, (select count(*) from effect e where e.job = j.id) from queue.jobs j order by j.id",
        )
        .fetch_all(&db.pool)
        .await
        .unwrap();
        let again = if end == Part::Rest { 1 } else { 2 };
        let row = |state: &str, attempts: i16, calls| (state.to_owned(), attempts, calls);
        let expected = [row("completed", 1, 1), row("dead", 1, 1), row("completed", 2, 2), row("completed", 1, 3)];
        assert_eq!(attempts[..4], expected, "{end:?}");
        assert_eq!(attempts[4..], [row("completed", again, again.into()), row("completed", again, again.into())], "{end:?}");
        let errors: Vec<(JobId, String)> =
            sqlx::query_as("select id, error from queue.failure order by id, attempt").fetch_all(&db.pool).await.unwrap();
        let of_the_batch = match end {
            Part::Error => "the batch failed",
            Part::Panic => "panicked: as told",
            _ => "timed out after 3s",
        };
        let message = format!("{of_the_batch} (it ran in a batch of 6 jobs)");
        let mut expected = vec![(jobs[1], "no way".to_owned()), (jobs[2], "this one failed".to_owned())];
        if end != Part::Rest {
            expected.extend([(jobs[4], message.clone()), (jobs[5], message)]);
        }
        assert_eq!(errors, expected);
        db.finish().await;
    }
}

#[tokio::test]
async fn each_job_of_a_batch_is_reported_and_counted_separately() {
    let db = TestDb::new().await;
    let jobs = enqueue(&db, vec![Part::Complete, Part::Rest, Part::Dead, Part::First(Box::new(Part::Fail))]).await;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let hook = move |attempt: &queue_worker::AttemptOutcome<'_>| {
        sender.send((attempt.job, attempt.attempt, format!("{:?}", attempt.outcome), attempt.job_type)).unwrap();
    };
    db.run_while(worker(&db).on_outcome(hook), eventually("all have finished", async || in_state(&db, "completed").await == 3)).await;
    let mut all = Vec::new();
    while let Ok(one) = receiver.try_recv() {
        all.push(one);
    }
    all.sort();
    let row = |job, attempt, outcome: &str| (job, attempt, outcome.to_owned(), "batched");
    let expected =
        [row(jobs[0], 1, "Ok"), row(jobs[1], 1, "Ok"), row(jobs[2], 1, "Terminal"), row(jobs[3], 1, "Failed"), row(jobs[3], 2, "Ok")];
    assert_eq!(all, expected);
    db.finish().await;
}
