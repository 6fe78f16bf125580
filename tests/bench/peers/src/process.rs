//! Runs a worker as a separate process, which is this binary with the hidden command `work`. The process runs until its stdin is closed,
//! which also happens when the benchmark is killed. The process writes one line of JSON to stdout when all jobs have run, and another line
//! with its counts at the end.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::{
    client::Peer,
    database::BenchDatabase,
    job::{self, RunCounts},
    worker::{self, Shape},
};

/// Message from a worker process, written as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerMessage {
    /// Report that all jobs have run, with the time of the first run.
    Reached { first: u64 },
    /// Report of the final counts at the end of the process.
    RunCounts(RunCounts),
}

/// Runs a worker of `peer` until stdin is closed, then reports the counts.
pub(crate) async fn live(peer: Peer, shape: Shape, goal: u64, url: &str) -> anyhow::Result<()> {
    job::count(goal, |first| send_message(&WorkerMessage::Reached { first }));
    let (end, ended) = watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = end.send(true);
    });
    worker::work(peer, shape, url, ended).await?;
    send_message(&WorkerMessage::RunCounts(job::seen()));
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
const PATIENCE: Duration = Duration::from_secs(120);

impl WorkerProcess {
    /// Starts a worker process that reports when it has run `goal` jobs.
    pub(crate) fn start(database: &BenchDatabase, peer: Peer, shape: Shape, goal: u64) -> anyhow::Result<Self> {
        let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["work", &name(peer.to_possible_value()), &name(shape.to_possible_value()), &goal.to_string()]);
        command.env("DATABASE_URL", &database.url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a worker process")?;
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

    /// Waits until the worker has run all jobs. Returns the time of the first run.
    pub(crate) async fn reached(&mut self) -> anyhow::Result<u64> {
        match self.listen().await? {
            WorkerMessage::Reached { first } => Ok(first),
            WorkerMessage::RunCounts(seen) => bail!("the worker exited before it had run all jobs: {seen:?}"),
        }
    }

    /// Stops the worker gracefully and returns its final counts.
    pub(crate) async fn stop(mut self) -> anyhow::Result<RunCounts> {
        drop(self.stdin.take());
        let WorkerMessage::RunCounts(seen) = self.listen().await? else { bail!("the worker reported twice that it had run all jobs") };
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await??;
        ensure!(status.success(), "the worker failed: {status}");
        Ok(seen)
    }

    async fn listen(&mut self) -> anyhow::Result<WorkerMessage> {
        let message = tokio::time::timeout(PATIENCE, self.message.recv()).await.context("the worker did not run its jobs in time")?;
        message.context("the worker exited by itself; see its output above")
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
