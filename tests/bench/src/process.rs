//! The worker as a process of its own, so that what it costs can be told from what the bench costs.
//!
//! The process is this binary again, with the hidden command `worker`. It works until its stdin ends, which it also does when the bench
//! is killed, and says on its stdout, a line of JSON each, when it has run as many jobs as it was told to, and at the end what it has seen.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use queue_worker::{Config, Error, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};

use crate::{
    BenchError,
    database::BenchDatabase,
    job::{Noop, TALLY},
    measure,
};

/// How a worker is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As it comes.
    Defaults,
    /// For jobs that take no time.
    Tuned,
    /// The same, with claims of so many jobs.
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

    /// The most jobs of a claim, if it is not as it comes.
    fn batch(self) -> Option<usize> {
        match self {
            Self::Defaults => None,
            Self::Tuned => Some(1000),
            Self::Batch(jobs) => Some(jobs),
        }
    }
}

/// What a worker process says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// The number of runs aimed at was reached; when the first one was.
    Reached { first: u64 },
    /// The end.
    Seen(Seen),
}

/// What a worker process has seen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How often a handler ran.
    pub(crate) runs: u64,
    /// Of how many jobs.
    pub(crate) distinct: u64,
    /// See [`crate::job::Tally::take_waits`]; sorted.
    pub(crate) waits: Vec<u64>,
}

/// The whole life of a worker process: works until stdin ends, then says what it has seen.
pub(crate) async fn work(pool: &PgPool, batch: Option<usize>, goal: u64) -> Result<(), Error> {
    TALLY.aim(goal, |first| say(&Said::Reached { first }));
    let (ended, end) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let mut config = Config::default();
    if let Some(batch) = batch {
        (config.concurrency, config.batch) = (500, batch);
    }
    let worker = Worker::new(pool.clone()).register::<Noop>().config(config);
    worker.run(async { drop(end.await) }).await?;
    let mut waits = TALLY.take_waits();
    waits.sort_unstable();
    say(&Said::Seen(Seen { runs: TALLY.runs(), distinct: TALLY.distinct(), waits }));
    Ok(())
}

fn say(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        // Without a reader there is no bench any more.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// A worker process, as the bench sees it. Killed when dropped.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    said: mpsc::UnboundedReceiver<Said>,
}

/// No measurement takes longer.
const PATIENCE: Duration = Duration::from_mins(5);

impl WorkerProcess {
    /// Starts one that says when it has run `goal` jobs.
    pub(crate) fn start(database: &BenchDatabase, shape: Shape, goal: u64) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Process(format!("cannot be started: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["worker", "--goal", &goal.to_string()]);
        if let Some(batch) = shape.batch() {
            command.args(["--batch", &batch.to_string()]);
        }
        let mut child = command.env("DATABASE_URL", database.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, said) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                if let Ok(said) = serde_json::from_str(&line) {
                    let _ = tell.send(said);
                }
            }
        });
        Ok(Self { child, stdin, said })
    }

    /// Waits until it has run as many jobs as it was told to; returns when it ran the first.
    pub(crate) async fn reached(&mut self) -> Result<u64, BenchError> {
        match self.listen().await? {
            Said::Reached { first } => Ok(first),
            Said::Seen(_) => Err(BenchError::Process("ended before it had run all jobs".to_owned())),
        }
    }

    /// Its processor time so far.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        measure::cpu_of(self.child.id())
    }

    /// Ends it, gracefully.
    pub(crate) async fn stop(mut self) -> Result<Seen, BenchError> {
        drop(self.stdin.take());
        let seen = loop {
            if let Said::Seen(seen) = self.listen().await? {
                break seen;
            }
        };
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await;
        match status {
            Ok(Ok(status)) if status.success() => Ok(seen),
            other => Err(BenchError::Process(format!("did not end well: {other:?}"))),
        }
    }

    async fn listen(&mut self) -> Result<Said, BenchError> {
        match tokio::time::timeout(PATIENCE, self.said.recv()).await {
            Ok(Some(said)) => Ok(said),
            Ok(None) => Err(BenchError::Process("ended by itself; what it said of that is above".to_owned())),
            Err(_) => Err(BenchError::Process(format!("has not run its jobs within {PATIENCE:?}"))),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
