//! Runs the worker as a separate process, so that its cost is measured separately from the cost of the benchmark.
//!
//! The process is this binary with the hidden command `worker`. The process runs until its stdin is closed, which also happens when the
//! benchmark is killed. The process writes one line of JSON to stdout after the given number of jobs, and another line with its counts at
//! the end.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use queue_core::{
    Store,
    stores::{Member, Roster},
};
use queue_worker::{Config, Error, StoresWorker, Worker};
use serde::{Deserialize, Serialize};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    BenchError,
    database::BenchDatabase,
    job::{Noop, RUN_COUNTER},
    measure,
};

/// Settings of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Default settings.
    Defaults,
    /// Settings for jobs that take no time.
    Tuned,
    /// Settings for jobs that take no time, with the given maximum number of jobs per claim.
    Batch(usize),
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults",
            Self::Tuned => "tuned",
            Self::Batch(_) => "by the batch",
        }
    }

    /// Returns the maximum number of jobs per claim, or `None` for the default.
    fn batch(self) -> Option<usize> {
        match self {
            Self::Defaults => None,
            Self::Tuned => Some(1000),
            Self::Batch(jobs) => Some(jobs),
        }
    }
}

/// Message from a worker process, written as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerMessage {
    /// Report that the worker has reached the requested number of runs, with the time of the first run.
    Reached { first: u64 },
    /// Report of the final counts at the end of the process.
    RunCounts(RunCounts),
}

/// Counts reported by a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunCounts {
    /// Number of handler runs.
    pub(crate) runs: u64,
    /// Number of distinct jobs that have run.
    pub(crate) distinct: u64,
    /// Sorted latencies, see [`crate::job::RunCounter::take_waits`].
    pub(crate) waits: Vec<u64>,
}

/// Runs a worker process until stdin is closed, then reports the counts. If `stores` contains URLs, the process serves the stores in those
/// databases instead of the store behind `pool`.
pub(crate) async fn work(pool: &PgPool, stores: &[String], batch: Option<usize>, goal: u64) -> Result<(), Error> {
    RUN_COUNTER.set_goal(goal, |first| send_message(&WorkerMessage::Reached { first }));
    let (ended, end) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let mut config = Config::default();
    if let Some(batch) = batch {
        (config.concurrency, config.batch) = (500, batch);
    }
    let configure = move |worker: Worker| worker.register::<Noop>().config(config.clone());
    let shutdown = async { drop(end.await) };
    if stores.is_empty() {
        configure(Worker::new(pool.clone())).run(shutdown).await?;
    } else {
        let roster = Roster::default();
        for (nth, url) in stores.iter().enumerate() {
            let options = url.parse::<PgConnectOptions>()?.application_name("queue-worker");
            let pool = PgPoolOptions::new().connect_lazy_with(options);
            roster.put(Member::new(&format!("s{nth}"), &pool, Store::default())?);
        }
        StoresWorker::new(&roster, move |_, worker| configure(worker)).run(shutdown).await?;
    }
    let mut waits = RUN_COUNTER.take_waits();
    waits.sort_unstable();
    send_message(&WorkerMessage::RunCounts(RunCounts { runs: RUN_COUNTER.runs(), distinct: RUN_COUNTER.distinct(), waits }));
    Ok(())
}

fn send_message(message: &WorkerMessage) {
    if let Ok(line) = serde_json::to_string(message) {
        // A failed write means that the benchmark has exited.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Handle to a worker process, which is killed when the handle is dropped.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    message: mpsc::UnboundedReceiver<WorkerMessage>,
}

/// Time limit for each message from a worker process.
const PATIENCE: Duration = Duration::from_mins(5);

impl WorkerProcess {
    /// Starts a worker process that reports when it has run `goal` jobs.
    pub(crate) fn start(database: &BenchDatabase, shape: Shape, goal: u64) -> Result<Self, BenchError> {
        Self::start_with(database, &[], shape, goal)
    }

    /// Starts one worker process for the stores in `databases`, which must not be empty.
    pub(crate) fn start_on(databases: &[&BenchDatabase], shape: Shape, goal: u64) -> Result<Self, BenchError> {
        Self::start_with(databases[0], databases, shape, goal)
    }

    fn start_with(database: &BenchDatabase, stores: &[&BenchDatabase], shape: Shape, goal: u64) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Process(format!("cannot be started: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["worker", "--goal", &goal.to_string()]);
        if let Some(batch) = shape.batch() {
            command.args(["--batch", &batch.to_string()]);
        }
        for store in stores {
            command.args(["--store", store.url()]);
        }
        let mut child = command.env("DATABASE_URL", database.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (sender, message) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line) {
                    let _ = sender.send(message);
                }
            }
        });
        Ok(Self { child, stdin, message })
    }

    /// Waits until the worker has run the requested number of jobs. Returns the time of the first run.
    pub(crate) async fn reached(&mut self) -> Result<u64, BenchError> {
        match self.listen().await? {
            WorkerMessage::Reached { first } => Ok(first),
            WorkerMessage::RunCounts(_) => Err(BenchError::Process("exited before it had run all jobs".to_owned())),
        }
    }

    /// Returns the CPU time that the worker process has used so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        measure::cpu_of(self.child.id())
    }

    /// Stops the worker gracefully and returns its final counts.
    pub(crate) async fn stop(mut self) -> Result<RunCounts, BenchError> {
        drop(self.stdin.take());
        let seen = loop {
            if let WorkerMessage::RunCounts(seen) = self.listen().await? {
                break seen;
            }
        };
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await;
        match status {
            Ok(Ok(status)) if status.success() => Ok(seen),
            other => Err(BenchError::Process(format!("failed: {other:?}"))),
        }
    }

    async fn listen(&mut self) -> Result<WorkerMessage, BenchError> {
        match tokio::time::timeout(PATIENCE, self.message.recv()).await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(BenchError::Process("exited by itself; see its output above".to_owned())),
            Err(_) => Err(BenchError::Process(format!("did not run its jobs within {PATIENCE:?}"))),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
