//! Worker process of a chaos run, with the job types.

use std::{
    env,
    fs::OpenOptions,
    path::PathBuf,
    str::FromStr,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use queue_core::{
    Context, Handler, JobResult,
    batch::{BatchContext, BatchHandler, JobBatch},
    job,
};
use queue_worker::{Config, Worker, shutdown_signal};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;

use super::{
    durable::{Leaf, Parent, Sleeper},
    history::{History, Line},
    ticks::{self, Tick},
};

/// Job whose number is chosen by the producer. The number identifies the job even if the result of the enqueue is unknown.
#[job(name = "chaos", queue = "chaos", max_attempts = 1000, backoff = fixed("100ms"), timeout = "60s", output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Chaos {
    pub(super) n: u64,
    pub(super) ms: u64,
    pub(super) act: Behaviour,
}

/// Behaviour of a job's handler.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Behaviour {
    /// Waits for the duration of the job.
    Wait,
    /// Waits, and returns the name of the process as the job's output.
    Say,
    /// Waits, and writes the job's number to the ledger.
    Enter,
    /// Fails on the first attempt.
    FailOnce,
    /// Blocks the thread for the duration of the job.
    Spin,
    /// Aborts the process.
    Abort,
    /// Fails the whole batch. Outside a batch, only waits.
    Poison,
}

static HISTORY: OnceLock<History> = OnceLock::new();

/// Returns the history of this process.
pub(super) fn history() -> JobResult<&'static History> {
    HISTORY.get().ok_or_else(|| "no history".into())
}

impl Handler for Chaos {
    async fn run(self, cx: &Context) -> JobResult<Option<String>> {
        let history = history()?;
        let who = label();
        history.write(&Line::Start(self.n, cx.id().0, cx.attempt()));
        let recorder = DropRecorder { n: self.n, attempt: cx.attempt(), ended: AtomicBool::new(false) };
        let end = |good| {
            recorder.ended.store(true, Relaxed);
            history.write(&Line::End(self.n, cx.id().0, cx.attempt(), good));
        };
        let pause = Duration::from_millis(self.ms);
        match self.act {
            Behaviour::Spin => {
                let until = Instant::now() + pause;
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            Behaviour::Abort => std::process::abort(),
            Behaviour::Wait | Behaviour::Say | Behaviour::Enter | Behaviour::FailOnce | Behaviour::Poison => {
                tokio::time::sleep(pause).await;
            }
        }
        if matches!(self.act, Behaviour::FailOnce) && cx.attempt() == 1 {
            end(false);
            return Err("intentional failure".into());
        }
        if matches!(self.act, Behaviour::Enter) {
            return enter(cx, self.n, end).await;
        }
        end(true);
        Ok(matches!(self.act, Behaviour::Say).then_some(who))
    }
}

/// Guard that records in the history when a handler is dropped before it returns.
struct DropRecorder {
    n: u64,
    attempt: u32,
    ended: AtomicBool,
}

impl Drop for DropRecorder {
    fn drop(&mut self) {
        if let Some(history) = HISTORY.get().filter(|_| !self.ended.load(Relaxed)) {
            history.write(&Line::Dropped(self.n, self.attempt));
        }
    }
}

/// Variant of `Chaos` with a batch handler. The history has one start and one end for each job of a batch.
#[job(name = "chaos_batch", queue = "chaos", batch = 20, batch_wait = "50ms", max_attempts = 20, backoff = fixed("100ms"), timeout = "60s")]
#[derive(Serialize, Deserialize)]
pub(super) struct ChaosBatch {
    pub(super) n: u64,
    pub(super) ms: u64,
    pub(super) act: Behaviour,
}

impl BatchHandler for ChaosBatch {
    async fn run(batch: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        let history = history()?;
        for job in batch.iter() {
            history.write(&Line::Start(job.payload().n, job.id().0, job.attempt()));
        }
        tokio::time::sleep(Duration::from_millis(batch.iter().map(|job| job.payload().ms).max().unwrap_or(0))).await;
        let poisoned = batch.iter().any(|job| matches!(job.payload().act, Behaviour::Poison));
        for job in batch.iter_mut() {
            let fails = matches!(job.payload().act, Behaviour::FailOnce) && job.attempt() == 1;
            history.write(&Line::End(job.payload().n, job.id().0, job.attempt(), !fails && !poisoned));
            if fails && !poisoned {
                job.fail("intentional failure");
            }
        }
        if poisoned { Err(POISON.into()) } else { Ok(()) }
    }
}

/// Error of a batch that contains a poison job.
pub(super) const POISON: &str = "one of these is poison";

/// Writes the job's number to the ledger. No other code writes to this table, and it has no unique key. Only the transaction that
/// completes the job prevents duplicates.
async fn enter(cx: &Context, n: u64, end: impl Fn(bool)) -> JobResult<Option<String>> {
    let mut tx = cx.begin().await?;
    sqlx::query("insert into ledger (n) values ($1)").bind(n.cast_signed()).execute(&mut *tx).await.inspect_err(|_| end(false))?;
    end(true);
    tx.complete(None).await
}

/// Returns the name of this process, which is unique within the run.
pub(super) fn label() -> String {
    env::var("CHAOS_LABEL").unwrap_or_default()
}

/// Returns the path of this process's file with the extension `ending`.
pub(super) fn own_file(ending: &str) -> PathBuf {
    PathBuf::from(env::var_os("CHAOS_FOLDER").unwrap_or_default()).join(format!("{}.{ending}", label()))
}

/// Entry point of a worker process.
pub(super) fn main() -> Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(own_file("log"))?;
    tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(log)).with_max_level(tracing::Level::WARN).init();
    HISTORY.get_or_init(|| History::open(&own_file("history")).unwrap_or_else(|error| panic!("{error:#}")));
    let threads = setting("CHAOS_THREADS", 2_usize);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let result = runtime.block_on(work());
    runtime.shutdown_background();
    result
}

async fn work() -> Result<()> {
    let url = env::var("DATABASE_URL").context("DATABASE_URL")?;
    let mut config = Config::default();
    config.name = label();
    config.poll_interval = Duration::from_millis(setting("CHAOS_POLL_MS", 1000));
    config.lease_ttl = Duration::from_millis(setting("CHAOS_TTL_MS", 5000));
    config.concurrency = setting("CHAOS_CONCURRENCY", 10);
    config.grace = Duration::from_secs(2);
    // Database errors are retried, because the server may be down. A running worker would also wait for the server.
    loop {
        let pool = PgPoolOptions::new().max_connections(4).test_before_acquire(false).connect_lazy(&url)?;
        let mut worker = Worker::new(pool).config(config.clone()).register::<Chaos>().register_batch::<ChaosBatch>().register::<Tick>();
        worker = worker.register::<Parent>().register::<Leaf>().register::<Sleeper>();
        if setting("CHAOS_DECLARES", false) {
            worker = worker.schedule(ticks::DECLARED, ticks::each_second());
        }
        match worker.run(shutdown_signal()).await {
            Ok(()) => return Ok(()),
            Err(queue_worker::Error::Database(_) | queue_worker::Error::Core(queue_core::Error::Database(_))) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns a setting from the environment, or `default` if the variable is not set or cannot be parsed.
pub(super) fn setting<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
