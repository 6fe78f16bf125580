//! Tests attempt outcomes, the verdict for each outcome, and the data that the store records for both.

use std::time::Duration;

use queue_core::{Context, Failure, Handler, Job as _, JobId, JobResult, JobState, job};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tests::{Act, Do, TestDb, WorkerProcess, effects, eventually, within};

async fn enqueue(db: &TestDb, act: Act) -> JobId {
    Do { act }.enqueue(&db.pool).await.unwrap().id()
}

/// Returns the attempt number and error of each failure, oldest failure first.
async fn failures(db: &TestDb, id: JobId) -> Vec<(i16, String)> {
    let query = "select attempt, error from queue.failure where id = $1 order by at, attempt";
    sqlx::query_as(query).bind(id).fetch_all(&db.pool).await.unwrap()
}

/// Returns the number of attempts charged to a job.
async fn attempts(db: &TestDb, id: JobId) -> i16 {
    sqlx::query_scalar("select attempts from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await.unwrap()
}

async fn error(db: &TestDb, id: JobId) -> String {
    sqlx::query_scalar("select error from queue.dead where id = $1").bind(id).fetch_one(&db.pool).await.unwrap()
}

async fn output(db: &TestDb, id: JobId) -> Option<String> {
    sqlx::query_scalar("select output::text from queue.jobs where id = $1").bind(id).fetch_one(&db.pool).await.unwrap()
}

#[tokio::test]
async fn a_job_that_succeeds_is_completed_with_its_output() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Ok("hello".into())).await;
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    assert_eq!(output(&db, job).await.as_deref(), Some("\"hello\""));
    assert_eq!((attempts(&db, job).await, failures(&db, job).await), (1, vec![]));
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_succeeds_at_last_keeps_the_error_of_every_attempt() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::FailUntil(3)).await;
    db.run_until_idle(db.worker()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    assert_eq!((attempts(&db, job).await, effects(&db.pool, job).await.unwrap()), (3, 3));
    assert_eq!(failures(&db, job).await, [1, 2].map(|attempt| (attempt, "not before attempt 3".to_owned())));
    db.finish().await;
}

#[tokio::test]
async fn a_wait_of_months_is_kept_and_one_of_centuries_is_an_error() {
    const DAY: u64 = 86_400_000;
    let db = TestDb::new().await;
    let kept = [(enqueue(&db, Act::Snooze(45 * DAY, 2)).await, 45), (enqueue(&db, Act::RetryIn(60 * DAY)).await, 60)];
    let refused = [enqueue(&db, Act::Snooze(40_000 * DAY, 2)).await, enqueue(&db, Act::RetryIn(40_000 * DAY)).await];
    db.run_while(db.worker(), async {
        for (job, days) in kept {
            db.until(job, JobState::Scheduled).await;
            let wait = format!("select round(extract(epoch from run_at - now()) / 86400)::bigint from queue.scheduled where id = {job}");
            assert_eq!(db.count(&wait).await, days);
        }
        for job in refused {
            db.until(job, JobState::Dead).await;
            assert!(error(&db, job).await.contains("the delay of 40000 days is longer than 100 years"));
        }
    })
    .await;
    db.finish().await;
}

#[tokio::test]
async fn a_job_that_fails_its_last_attempt_is_dead_with_the_error_of_each() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Fail("no luck".into())).await;
    let once = Do { act: Act::Fail("never".into()) }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    db.run_until_idle(db.worker()).await;
    for (id, charged, text) in [(job, 3, "no luck"), (once, 1, "never")] {
        assert_eq!(db.state(id).await, Some(JobState::Dead));
        assert_eq!(
            (attempts(&db, id).await, effects(&db.pool, id).await.unwrap(), error(&db, id).await),
            (charged, charged.into(), text.to_owned())
        );
        assert_eq!(failures(&db, id).await, (1..=charged).map(|attempt| (attempt, text.to_owned())).collect::<Vec<_>>());
    }
    db.finish().await;
}

#[tokio::test]
async fn a_terminal_failure_is_dead_immediately() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Terminal("hopeless".into())).await;
    db.run_until_idle(db.worker()).await;
    assert_eq!((db.state(job).await, effects(&db.pool, job).await.unwrap()), (Some(JobState::Dead), 1));
    assert_eq!((error(&db, job).await, failures(&db, job).await), ("hopeless".to_owned(), vec![(1, "hopeless".to_owned())]));
    db.finish().await;
}

#[tokio::test]
async fn a_failure_may_choose_its_delay_but_gets_no_further_attempt() {
    let db = TestDb::new().await;
    let (soon, late) = (enqueue(&db, Act::RetryIn(1)).await, enqueue(&db, Act::RetryIn(3_600_000)).await);
    db.run_while(db.worker(), async {
        db.until(soon, JobState::Dead).await;
        db.until(late, JobState::Scheduled).await;
    })
    .await;
    assert_eq!(failures(&db, soon).await, [1, 2, 3].map(|attempt| (attempt, "later".to_owned())));
    let wait: f64 =
        sqlx::query_scalar("select extract(epoch from s.run_at - f.at)::float8 from queue.scheduled s join queue.failure f using (id)")
            .fetch_one(&db.pool)
            .await
            .unwrap();
    assert!((wait - 3600.0).abs() < 1e-3, "{wait} s, by the database's clock");
    assert_eq!(attempts(&db, late).await, 1);
    db.finish().await;
}

#[tokio::test]
async fn a_snooze_charges_no_attempt_and_is_no_failure() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Snooze(1, 10) }.enqueue(&db.pool).max_attempts(1).await.unwrap().id();
    db.run_until_idle(db.worker()).await;
    assert_eq!(output(&db, job).await.as_deref(), Some("\"awake\""));
    assert_eq!((attempts(&db, job).await, failures(&db, job).await), (1, vec![]));
    let seen: Vec<i32> = sqlx::query_scalar("select attempt from effect").fetch_all(&db.pool).await.unwrap();
    assert_eq!(seen, [1; 10], "each time it was called for its first attempt");
    db.finish().await;
}

/// Job that never ends by itself.
#[job(send_only, timeout = "100ms", max_attempts = 2, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct Endless;

impl Handler for Endless {
    async fn run(self, _: &Context) -> JobResult {
        std::future::pending().await
    }
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_has_failed() {
    let db = TestDb::new().await;
    let job = Endless.enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Endless>()).await;
    assert_eq!(db.state(job).await, Some(JobState::Dead));
    assert_eq!(failures(&db, job).await, [1, 2].map(|attempt| (attempt, "timed out after 100ms".to_owned())));
    assert_eq!(db.count("select count(*) from queue.failure where ran_ms < 100").await, 0, "none was cut short");
    db.finish().await;
}

#[tokio::test]
async fn f02_a_nul_in_an_output_or_an_error_is_replaced() {
    let db = TestDb::new().await;
    let (nul, fails) = (enqueue(&db, Act::Nul).await, enqueue(&db, Act::FailNul).await);
    db.run_until_idle(db.worker()).await;
    assert_eq!(output(&db, nul).await.as_deref(), Some("\"a\u{fffd}b\""));
    assert_eq!(error(&db, fails).await, "a\u{fffd}b");
    db.finish().await;
}

#[tokio::test]
async fn f17_an_error_of_ten_megabytes_is_cut_at_a_character() {
    const LONG: usize = 10 << 20;
    let db = TestDb::new().await;
    let jobs = [enqueue(&db, Act::FailLong(LONG)).await, enqueue(&db, Act::PanicLong(LONG)).await];
    db.run_until_idle(db.worker()).await;
    for id in jobs {
        let errors: Vec<String> = failures(&db, id).await.into_iter().map(|(_, error)| error).chain([error(&db, id).await]).collect();
        assert_eq!(errors.len(), 4);
        for error in errors {
            assert!((8190..=8192).contains(&error.len()), "{} bytes", error.len());
            assert!(error.ends_with(if id == jobs[0] { 'é' } else { 'x' }));
        }
    }
    db.finish().await;
}

/// Job that leaves no record when it completes.
#[job(send_only, retain = "none", max_attempts = 2, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct Fleeting {
    attempts: u32,
}

impl Handler for Fleeting {
    async fn run(self, cx: &Context) -> JobResult {
        if cx.attempt() < self.attempts { Err("not yet".into()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_completed_job_that_retains_nothing_leaves_nothing_and_a_dead_one_stays() {
    let db = TestDb::new().await;
    for attempts in [1, 2, 1] {
        Fleeting { attempts }.enqueue(&db.pool).await.unwrap();
    }
    // The store's own keys for children, nodes and parts have no meaning in a user's metadata.
    for key in ["child_of", "node_of", "part_of"] {
        Fleeting { attempts: 1 }.enqueue(&db.pool).meta(key, "17").await.unwrap();
    }
    let dead = Fleeting { attempts: 9 }.enqueue(&db.pool).await.unwrap().id();
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Fleeting>()).await;
    for (table, left) in [("job", 1), ("failure", 2), ("done", 0), ("done_many", 0), ("lease", 0)] {
        assert_eq!(db.count(&format!("select count(*) from queue.{table}")).await, left, "{table}");
    }
    assert_eq!((db.state(dead).await, failures(&db, dead).await.len()), (Some(JobState::Dead), 2));
    db.finish().await;
}

#[tokio::test]
async fn f23_the_last_attempt_there_can_be_does_not_overflow() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for (act, before) in [(Act::Fail("no".into()), 32766), (Act::Fail("no".into()), 32767), (Act::Panic, 32767), (Act::Snooze(1, 3), 32767)]
    {
        let job = Do { act }.enqueue(&db.pool).max_attempts(32767).await.unwrap().id();
        sqlx::query("update queue.ready set attempts = $2 where id = $1").bind(job).bind(before).execute(&db.pool).await.unwrap();
        jobs.push(job);
    }
    db.run_until_idle(db.worker()).await;
    for id in &jobs[..3] {
        assert_eq!((db.state(*id).await, attempts(&db, *id).await), (Some(JobState::Dead), 32767));
    }
    assert_eq!((db.state(jobs[3]).await, attempts(&db, jobs[3]).await), (Some(JobState::Completed), 32767));
    db.finish().await;
}

/// Job that returns its payload unchanged.
#[job(send_only, output = Box<RawValue>)]
#[derive(Serialize, Deserialize)]
struct Echo {
    json: String,
}

impl Handler for Echo {
    async fn run(self, _: &Context) -> JobResult<Box<RawValue>> {
        RawValue::from_string(self.json).map_err(Failure::terminal)
    }
}

#[tokio::test]
async fn f03_one_output_that_the_database_refuses_harms_no_other() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let refused = [r#""\ud800""#, r#"{"\udc00": 1}"#, "1e200000", r#"["\ud83d", "\u0000"]"#, &deep];
    let db = TestDb::new().await;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for number in 0..100 {
        good.push(Echo { json: number.to_string() }.enqueue(&db.pool).await.unwrap().id());
        if number % 20 == 7 {
            bad.push(
                Echo { json: refused[number / 20].to_owned() }
                    .enqueue(&db.pool)
                    .await
                    .unwrap_or_else(|error| panic!("{number}: {error}"))
                    .id(),
            );
        }
    }
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Echo>().concurrency(200)).await;
    for (number, id) in good.into_iter().enumerate() {
        assert_eq!(output(&db, id).await, Some(number.to_string()));
    }
    for id in bad {
        assert_eq!((db.state(id).await, output(&db, id).await, attempts(&db, id).await), (Some(JobState::Completed), None, 1));
    }
    assert_eq!(db.count("select count(*) from queue.failure").await, 0);
    db.finish().await;
}

/// Job that returns `bytes` bytes of JSON.
#[job(send_only, output = Box<RawValue>, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
struct Bulky {
    bytes: usize,
}

impl Handler for Bulky {
    async fn run(self, _: &Context) -> JobResult<Box<RawValue>> {
        RawValue::from_string(format!("\"{}\"", "x".repeat(self.bytes - 2))).map_err(Failure::terminal)
    }
}

#[tokio::test]
#[ignore = "deep"]
async fn outputs_too_large_for_one_statement_are_settled_in_several_and_one_too_large_for_any_is_refused() {
    let db = TestDb::new().await;
    for bytes in [4 << 20; 12] {
        Bulky { bytes }.enqueue(&db.pool).await.unwrap();
    }
    let beyond = Bulky { bytes: (16 << 20) + 1 }.enqueue(&db.pool).await.unwrap().id();
    db.run_while(Worker::new(db.pool.clone()).register::<Bulky>(), async {
        let finished = async || db.count("select count(*) from queue.jobs where state in ('completed', 'dead')").await == 13;
        within(Duration::from_mins(1), "all have finished", finished).await;
    })
    .await;
    assert_eq!(db.count("select count(*) from queue.done where length(output #>> '{}') = (4 << 20) - 2").await, 12);
    assert!(error(&db, beyond).await.contains("store a reference"));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f51_a_handler_that_blocks_its_thread_does_not_lose_its_lease() {
    let db = TestDb::new().await;
    let job = enqueue(&db, Act::Block(3000)).await;
    let settings = [("TTL_MS", "1000"), ("CONCURRENCY", "1")];
    let _blocked = WorkerProcess::start(env!("CARGO_BIN_EXE_test-worker"), &db.url, &settings);
    eventually("the handler blocks", async || effects(&db.pool, job).await.unwrap() == 1).await;
    // The second worker would recover the job if the first worker lost its lease.
    db.run_while(db.worker().lease_ttl(Duration::from_secs(1)), db.until(job, JobState::Completed)).await;
    assert_eq!((attempts(&db, job).await, effects(&db.pool, job).await.unwrap(), failures(&db, job).await), (1, 1, vec![]));
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn f51_a_handler_that_never_awaits_is_reported_as_stuck_once() {
    let db = TestDb::new().await;
    let started = std::time::Instant::now();
    let worker = WorkerProcess::start_logged(env!("CARGO_BIN_EXE_test-worker"), &db.url, &[("CONCURRENCY", "2")]);
    // The job's timeout is 5 s. The worker reports the handler as stuck 5 s after the timeout.
    let job = enqueue(&db, Act::Block(12_500)).await;
    let prompt = enqueue(&db, Act::Sleep(100)).await;
    db.until(job, JobState::Running).await;
    within(Duration::from_secs(25), "the handler has returned", async || db.state(job).await != Some(JobState::Running)).await;
    // Counts only reports about this job. The blocked thread may also delay the timer of the other handler, so a report about that
    // handler would be correct.
    let of_it = |line: &String| line.contains("handler is stuck") && line.contains(&format!("job={job}"));
    let reports = worker.log_since(started).into_iter().filter(of_it).collect::<Vec<_>>();
    assert_eq!(reports.len(), 1, "{reports:?}");
    for part in ["job_type=\"do\"".to_owned(), "spawn_blocking".to_owned(), "ERROR".to_owned()] {
        assert!(reports[0].contains(&part), "{part} is not in {}", reports[0]);
    }
    within(Duration::from_secs(25), "the other job is completed", async || db.state(prompt).await == Some(JobState::Completed)).await;
    db.finish().await;
}

/// Job whose output contains a number that JSON cannot represent. With `own`, the handler completes the job in a transaction.
#[job(output = Vec<f64>)]
#[derive(Serialize, Deserialize)]
struct Divide {
    own: bool,
}

impl Handler for Divide {
    async fn run(self, cx: &Context) -> JobResult<Vec<f64>> {
        let output = vec![1.0, f64::NAN];
        if self.own { cx.begin().await?.complete(output).await } else { Ok(output) }
    }
}

#[tokio::test]
async fn an_output_that_is_not_a_number_is_refused_as_a_payload_is_and_never_null() {
    let db = TestDb::new().await;
    let mut jobs = Vec::new();
    for own in [false, true] {
        jobs.push(Divide { own }.enqueue(&db.pool).await.unwrap().id());
    }
    db.run_until_idle(Worker::new(db.pool.clone()).register::<Divide>()).await;
    for job in jobs {
        assert_eq!(db.state(job).await, Some(JobState::Dead));
        let error = error(&db, job).await;
        assert!(error.contains("the number at `$[1]` is NaN or infinite"), "{error}");
    }
    db.finish().await;
}
