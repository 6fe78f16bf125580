//! Tests how a worker reports attempts: with log lines for failures and panics, and through the `on_outcome` hook.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use queue_core::{
    Job as _, JobId, JobState,
    options::{Outcome, Verdict},
};
use queue_worker::{AttemptOutcome, Worker};
use serde_json::Value;
use tests::{Act, Do, Own, TestDb, Within, WorkerProcess, eventually, within};

const CLI: &str = env!("CARGO_BIN_EXE_test-cli");
const WORKER: &str = env!("CARGO_BIN_EXE_test-worker");

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Returns the JSON log lines that contain the job's id, in a field of the event or of the attempt's span.
fn lines_of(log: &[Value], job: JobId) -> Vec<&Value> {
    let job = job.to_string();
    log.iter().filter(|line| [&line["fields"]["job"], &line["span"]["job"]].contains(&&Value::from(job.as_str()))).collect()
}

/// Returns the process's log lines since an instant as JSON. Panics if a line is not JSON.
fn json_lines(process: &WorkerProcess, since: Instant) -> Vec<Value> {
    let lines = process.log_since(since);
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[tokio::test]
async fn a_program_without_a_subscriber_sees_its_failures_on_stderr() {
    let db = TestDb::new().await;
    let since = Instant::now();
    let process = WorkerProcess::start_with(WORKER, &db.url, &[], &[("QUEUE_LOG", "unset"), ("NO_COLOR", "1")]);
    let failing = enqueue(&db, Act::Fail("no luck".into())).await;
    db.until(failing, JobState::Dead).await;
    let is_reported = |line: &String| line.contains("attempt failed") && line.contains("no luck") && line.contains(&failing.to_string());
    eventually("it is reported", async || process.log_since(since).iter().any(is_reported)).await;
    db.finish().await;
}

#[tokio::test]
async fn failed_attempts_and_dead_letters_are_logged_with_the_necessary_details() {
    let db = TestDb::new().await;
    let since = Instant::now();
    let process = WorkerProcess::start_with(CLI, &db.url, &["run", "--log-format", "json"], &[("QUEUE_LOG", "info")]);
    let fine = enqueue(&db, Act::Ok("a secret".into())).await;
    let (failing, hopeless) = (enqueue(&db, Act::Fail("no luck".into())).await, enqueue(&db, Act::Terminal("no way".into())).await);
    let panics = Do { act: Act::PanicLate }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    for (id, state) in [(fine, JobState::Completed), (failing, JobState::Dead), (hopeless, JobState::Dead), (panics, JobState::Dead)] {
        db.until(id, state).await;
    }
    let reports_of = |id| lines_of(&json_lines(&process, since), id).into_iter().cloned().collect::<Vec<_>>();
    eventually("all are reported", async || {
        reports_of(failing).len() == 3 && !reports_of(hopeless).is_empty() && reports_of(panics).len() == 2
    })
    .await;

    let lines = reports_of(failing);
    for (line, attempt) in lines.iter().zip([1, 2, 3]) {
        let fields = &line["fields"];
        assert_eq!(
            (&fields["attempt"], &fields["job_type"], &fields["error"]),
            (&attempt.into(), &"do".into(), &"no luck".into()),
            "{line}"
        );
        assert_eq!(line["level"], if attempt < 3 { "INFO" } else { "WARN" }, "{line}");
        assert_eq!(fields["next_try_in"].as_str(), (attempt < 3).then_some("50ms"), "{line}");
    }
    assert!(lines[2]["fields"]["message"].as_str().unwrap().contains(&format!("requeue {failing}")), "{}", lines[2]);
    assert_eq!(reports_of(hopeless).len(), 1);
    assert_eq!(reports_of(hopeless)[0]["level"], "WARN");
    let of_panic = reports_of(panics);
    let (panic_fields, span) = (&of_panic[0]["fields"], &of_panic[0]["span"]);
    assert_eq!(
        (&panic_fields["message"], &panic_fields["panic"], &of_panic[0]["level"]),
        (&"panicked".into(), &"late".into(), &"ERROR".into())
    );
    assert!(panic_fields["place"].as_str().unwrap().contains("act.rs:"), "{panic_fields}");
    assert_eq!((&span["job_type"], &span["attempt"]), (&"do".into(), &1.into()), "{span}");
    assert_eq!(reports_of(fine), Vec::<Value>::new(), "what succeeds is no news");

    let log = json_lines(&process, since);
    let started = log.iter().find(|line| line["fields"]["message"] == "worker started").unwrap();
    assert_eq!(started["fields"]["queues"], "all");
    assert!(!process.log_since(since).concat().contains("a secret"), "no payload is logged");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn a_job_that_ended_its_process_too_often_is_reported_by_the_worker_that_recovers_it() {
    let db = TestDb::new().await;
    let poison = enqueue(&db, Act::Abort).await;
    sqlx::query("update queue.ready set crashes = 2").execute(&db.pool).await.unwrap();
    let mut first = WorkerProcess::start(WORKER, &db.url, &[]);
    within(Duration::from_secs(20), "the process has ended", async || first.has_ended()).await;
    db.expire_worker(&first).await;
    let (since, second) = (Instant::now(), WorkerProcess::start_logged(WORKER, &db.url, &[]));
    db.until(poison, JobState::Dead).await;
    let reports = || second.log_since(since).into_iter().filter(|line| line.contains("dead letter")).collect::<Vec<_>>();
    eventually("it is reported", async || reports().len() == 1).await;
    assert!(reports()[0].contains("WARN") && reports()[0].contains(&format!("job={poison}")), "{:?}", reports());
    db.finish().await;
}

/// Outcome, verdict and error of each observed attempt.
type ObservedAttempts = Arc<Mutex<BTreeMap<(JobId, u32), Vec<(Outcome, Verdict, Option<String>)>>>>;

fn listening(worker: Worker) -> (Worker, ObservedAttempts) {
    let observed = ObservedAttempts::default();
    let by_hook = Arc::clone(&observed);
    let hook = move |attempt: &AttemptOutcome<'_>| {
        let what = (attempt.outcome, attempt.verdict, attempt.error.map(str::to_owned));
        by_hook.lock().unwrap().entry((attempt.job, attempt.attempt)).or_default().push(what);
    };
    (worker.on_outcome(hook), observed)
}

#[tokio::test]
async fn the_hook_gets_the_outcome_of_every_attempt_once() {
    let db = TestDb::new().await;
    let (worker, observed) = listening(db.worker().register::<Own>().register::<Within>());
    let mut jobs = vec![
        (enqueue(&db, Act::Ok(String::new())).await, Outcome::Ok, Verdict::Complete, None),
        (enqueue(&db, Act::Terminal("no way".into())).await, Outcome::Terminal, Verdict::Dead, Some("no way")),
    ];
    let panicking = Do { act: Act::Panic }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    jobs.push((panicking, Outcome::Panicked, Verdict::Dead, Some("panicked: as told")));
    for (how, outcome, verdict, error) in [
        ("plain", Outcome::Ok, Verdict::Complete, None),
        ("fail", Outcome::Terminal, Verdict::Dead, Some("as told")),
        // These handlers first commit the completion of the job. Their later error or panic is therefore ignored.
        ("error after", Outcome::Ok, Verdict::Complete, None),
        ("panic after", Outcome::Ok, Verdict::Complete, None),
    ] {
        jobs.push((Own { how: how.into() }.enqueue(&db.pool).await.unwrap().id(), outcome, verdict, error));
    }
    let fine = Within { how: "fine".into() }.enqueue(&db.pool).await.unwrap().id();
    let terminal = Within { how: "terminal".into() }.enqueue(&db.pool).await.unwrap().id();
    jobs.extend([(fine, Outcome::Ok, Verdict::Complete, None), (terminal, Outcome::Terminal, Verdict::Dead, Some("as told"))]);
    let second = enqueue(&db, Act::FailUntil(2)).await;
    db.run_until_idle(worker).await;

    let mut observed = std::mem::take(&mut *observed.lock().unwrap());
    for (id, outcome, verdict, error) in jobs {
        let outcomes = observed.remove(&(id, 1)).unwrap_or_default();
        assert_eq!(outcomes, [(outcome, verdict, error.map(str::to_owned))], "job {id}");
    }
    let outcomes = observed.remove(&(second, 1)).unwrap();
    assert!(matches!(outcomes[..], [(Outcome::Failed, Verdict::Retry(_), Some(_))]), "{outcomes:?}");
    assert_eq!(observed.remove(&(second, 2)).unwrap(), [(Outcome::Ok, Verdict::Complete, None)]);
    assert_eq!(observed.len(), 0, "{observed:?}");
    db.finish().await;
}

#[tokio::test]
async fn f33_a_zombies_lost_commit_is_not_reported() {
    let db = TestDb::new().await;
    let (worker, observed) = listening(db.worker().register::<Own>());
    let job = Own { how: "hold".into() }.enqueue(&db.pool).await.unwrap().id();
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and query like '%/* own */%'";
    db.run_while(worker, async {
        eventually("it has begun", async || db.count(waiting).await > 0 && db.state(job).await == Some(JobState::Running)).await;
        // Simulate a recovery: the job is scheduled for later, and its lease is gone.
        let mut tx = db.pool.begin().await.unwrap();
        let later = "insert into queue.scheduled (run_at, id, lane) select now() + interval '1 hour', id, lane from queue.job";
        sqlx::query(later).execute(&mut *tx).await.unwrap();
        sqlx::query("delete from queue.lease").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        sqlx::query("create table go ()").execute(&db.pool).await.unwrap();
    })
    .await;
    assert_eq!(*observed.lock().unwrap(), BTreeMap::new());
    assert_eq!((db.state(job).await, db.count("select count(*) from effect").await), (Some(JobState::Scheduled), 0));
    db.finish().await;
}

#[tokio::test]
async fn a_hook_that_panics_costs_no_slot_and_no_verdict() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(enqueue(&db, Act::Ok(String::new())).await);
    }
    db.run_until_idle(db.worker().concurrency(2).on_outcome(|_| panic!("a hook"))).await;
    for id in jobs {
        assert_eq!(db.state(id).await, Some(JobState::Completed));
    }
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f58_a_second_signal_within_a_moment_of_the_first_is_the_same_one() {
    let db = TestDb::new().await;
    let since = Instant::now();
    let mut process = WorkerProcess::start_with(CLI, &db.url, &["run"], &[("QUEUE_LOG", "info")]);
    let job = enqueue(&db, Act::FirstThen(Box::new(Act::Sleep(2000)), Box::new(Act::Terminal("began twice".into())))).await;
    db.until(job, JobState::Running).await;
    process.signal("INT");
    let is_reported = |process: &WorkerProcess| process.log_since(since).iter().any(|line| line.contains("shutting down"));
    eventually("the first was taken", async || is_reported(&process)).await;
    process.signal("TERM");
    process.signal("INT");
    eventually("the process has ended", async || process.has_ended()).await;
    assert_eq!(process.wait(), Some(0), "{:?}", process.log_since(since));
    assert_eq!(db.state(job).await, Some(JobState::Completed), "its handler had its time");
    db.finish().await;
}
