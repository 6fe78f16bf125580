//! Tests that the log events of a handler are stored with its attempt if the job type requests it. The logs are bounded and sanitised, and
//! do not delay jobs.
//!
//! The handlers and the collector of a test run on the test's own thread.

mod attacks;
mod statements;

use std::{
    io,
    sync::{Arc, Mutex},
};

use queue_core::{Context, Handler, Job as _, JobId, JobResult, JobState, Queue, job, operate::AttemptLog};
use serde::{Deserialize, Serialize};
use sqlx::ConnectOptions as _;
use tests::{Act, Do, TestDb};
use tracing::{Instrument as _, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _};

/// Job that logs events, and then ends as `how` specifies.
#[job(name = "logs_say", keep_logs = "4KiB", max_attempts = 2, backoff = fixed("1ms"), timeout = "5s", retain = "default")]
#[derive(Serialize, Deserialize)]
pub(crate) struct Say {
    how: String,
    text: String,
    times: u64,
}

impl Handler for Say {
    async fn run(self, cx: &Context) -> JobResult {
        for number in 0..self.times {
            tracing::info!(number, "{}", self.text);
        }
        match self.how.as_str() {
            "fail" => Err("as told".into()),
            "panic" => panic!("as told"),
            "retry" if cx.attempt() == 1 => Err("as told".into()),
            "commit" => {
                let tx = cx.begin().await?;
                tx.complete(()).await?;
                Ok(())
            }
            "nasty" => {
                tracing::info!("{NASTY}");
                Ok(())
            }
            "ask" => {
                let options = (*cx.pool().connect_options()).clone().log_statements("debug".parse().unwrap());
                let mut on = options.connect().await?;
                for number in 0..3 {
                    sqlx::query("select 1").execute(&mut on).await?;
                    tracing::info!(number, "after a statement");
                }
                Ok(())
            }
            "around" => {
                around().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Text with a character that a payload cannot contain, and with characters that could forge output.
const NASTY: &str = "nul\0 red\u{1b}[31m\r\n2026-01-01T00:00:00.000Z  INFO forged: <script>alert(1)</script>\u{202e}";

/// Logs events inside and outside the attempt's span.
async fn around() {
    tracing::debug!("too low");
    tracing::warn!(code = 7, name = "a b", "in the handler");
    async { tracing::info!("in a span of its own") }.instrument(tracing::info_span!("step")).await;
    async { tracing::info!("in a span that is not collected") }.instrument(tracing::debug_span!("step")).await;
    tokio::spawn(async { tracing::info!("in a task") }.instrument(tracing::info_span!("task"))).await.unwrap();
    tokio::spawn(async { tracing::info!("in a task of nobody") }).await.unwrap();
}

/// Job that is deleted when it completes, but kept as a dead letter.
#[job(name = "logs_forget", keep_logs = "1KiB", max_attempts = 3, backoff = fixed("1ms"), retain = "none")]
#[derive(Serialize, Deserialize)]
struct Forget;

impl Handler for Forget {
    async fn run(self, cx: &Context) -> JobResult {
        tracing::info!("attempt {}", cx.attempt());
        if cx.attempt() < 3 { Err("once more".into()) } else { Ok(()) }
    }
}

#[job(name = "logs_within", keep_logs = "1KiB", transactional)]
#[derive(Serialize, Deserialize)]
struct Within;

impl Handler for Within {
    async fn run(self, _: &Context) -> JobResult {
        tracing::info!("within");
        Ok(())
    }
}

pub(crate) fn collect() -> DefaultGuard {
    tracing::subscriber::set_default(tracing_subscriber::registry().with(queue_worker::logs()))
}

pub(crate) async fn say(db: &TestDb, how: &str, text: &str, times: u64) -> JobId {
    Say { how: how.to_owned(), text: text.to_owned(), times }.enqueue(&db.pool).await.unwrap().id()
}

async fn logs(db: &TestDb, job: JobId) -> Vec<AttemptLog> {
    Queue::new(&db.pool).job(job).logs().await.unwrap()
}

/// Returns the lines of a log without their times and targets.
fn lines(log: &AttemptLog) -> Vec<String> {
    let here = concat!(" ", module_path!(), ":");
    log.text.lines().map(|line| line.split_once('Z').map_or(line, |(_, rest)| rest).trim_start().replacen(here, "", 1)).collect()
}

#[tokio::test]
async fn the_logs_of_a_handler_are_stored_with_its_attempt() {
    let (db, _guard) = (TestDb::new().await, collect());
    let (job, around) = (say(&db, "retry", "hello", 2).await, say(&db, "around", "", 0).await);
    let other = Do { act: Act::Ok(String::new()) }.enqueue(&db.pool).await.unwrap().id();
    let worker = db.worker().register::<Say>().register::<Do>();
    db.run_while(worker, async {
        for job in [job, around, other] {
            db.until(job, JobState::Completed).await;
        }
        // The logs of a job are stored before the job is reported as finished.
        let [first, second] = <[_; 2]>::try_from(logs(&db, job).await).unwrap();
        assert_eq!((first.attempt, second.attempt, first.cut), (1, 2, 0));
        for log in [&first, &second] {
            assert_eq!(lines(log), ["INFO hello number=0", "INFO hello number=1"]);
        }
        let [log] = <[_; 1]>::try_from(logs(&db, around).await).unwrap();
        let expected = [
            r#"WARN in the handler code=7 name="a b""#,
            "INFO in a span of its own",
            "INFO in a span that is not collected",
            "INFO in a task",
        ];
        assert_eq!(lines(&log), expected);
        assert_eq!(logs(&db, other).await, []);
    })
    .await;
    db.finish().await;
}

/// Writer that collects printed output in memory.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_line_after_a_statement_of_the_driver_is_stored_and_printed() {
    let (db, printed) = (TestDb::new().await, Printed::default());
    let to = printed.clone();
    let print = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || to.clone()).with_filter(LevelFilter::INFO);
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(queue_worker::logs()).with(print));
    let job = say(&db, "ask", "", 0).await;
    db.run_while(db.worker().register::<Say>(), db.until(job, JobState::Completed)).await;
    let [log] = <[_; 1]>::try_from(logs(&db, job).await).unwrap();
    assert_eq!(lines(&log).len(), 3, "{}", log.text);
    let printed = String::from_utf8(printed.0.lock().unwrap().clone()).unwrap();
    assert_eq!(printed.matches("after a statement").count(), 3, "{printed}");
    db.finish().await;
}

#[tokio::test]
async fn logs_are_stored_however_the_attempt_ends() {
    let (db, _guard) = (TestDb::new().await, collect());
    let (dead, panicked) = (say(&db, "fail", "failing", 1).await, say(&db, "panic", "about to panic", 1).await);
    let (committed, within) = (say(&db, "commit", "committing", 1).await, Within.enqueue(&db.pool).await.unwrap().id());
    let worker = db.worker().register::<Say>().register::<Within>();
    db.run_while(worker, async {
        for (job, state) in [(dead, JobState::Dead), (panicked, JobState::Dead), (within, JobState::Completed)] {
            db.until(job, state).await;
        }
        db.until(committed, JobState::Completed).await;
        tests::eventually("the log of a job that its handler ended", async || logs(&db, committed).await.len() == 1).await;
    })
    .await;
    for (job, attempts, text) in
        [(dead, 2, "failing"), (panicked, 2, "about to panic"), (committed, 1, "committing"), (within, 1, "within")]
    {
        let kept = logs(&db, job).await;
        assert_eq!(kept.len(), attempts, "{text}");
        assert!(kept.iter().all(|log| log.text.contains(text)), "{kept:?}");
    }
    db.finish().await;
}

#[tokio::test]
async fn a_job_without_a_record_leaves_no_logs() {
    let (db, _guard) = (TestDb::new().await, collect());
    let job = Forget.enqueue(&db.pool).await.unwrap().id();
    db.run_while(db.worker().register::<Forget>(), async {
        tests::eventually("it is gone", async || db.state(job).await.is_none()).await;
    })
    .await;
    assert!(logs(&db, job).await.is_empty(), "nor is any shown that housekeeping has not deleted yet");
    sqlx::query("select queue.prune_logs(0, 1000)").execute(&db.pool).await.unwrap();
    assert_eq!(db.count("select count(*) from queue.log").await, 0);
    db.finish().await;
}

#[tokio::test]
async fn without_a_collector_a_type_that_keeps_logs_runs_as_any_other() {
    // Without this subscriber, the worker would install a subscriber that collects logs.
    let _subscriber = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default());
    let db = TestDb::new().await;
    let job = say(&db, "ok", "hello", 1).await;
    db.run_until_idle(db.worker().register::<Say>()).await;
    assert_eq!(db.state(job).await, Some(JobState::Completed));
    assert_eq!(db.count("select count(*) from queue.log").await, 0);
    db.finish().await;
}
