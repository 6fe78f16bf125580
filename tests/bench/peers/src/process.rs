//! A worker as a process of its own: this binary again, with the hidden command `work`. It works until its stdin ends, which it also does
//! when the bench is killed, and says on its stdout, a line of JSON each, when all jobs have run, and at the end what it has seen.

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
    job::{self, Seen},
    worker::{self, Shape},
};

/// What a worker process says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// All jobs have run; when the first one did.
    Reached { first: u64 },
    /// The end.
    Seen(Seen),
}

/// The whole life of a worker process.
pub(crate) async fn live(peer: Peer, shape: Shape, goal: u64, url: &str) -> anyhow::Result<()> {
    job::count(goal, |first| say(&Said::Reached { first }));
    let (end, ended) = watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = end.send(true);
    });
    worker::work(peer, shape, url, ended).await?;
    say(&Said::Seen(job::seen()));
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
const PATIENCE: Duration = Duration::from_secs(120);

impl WorkerProcess {
    /// Starts one that says when it has run `goal` jobs.
    pub(crate) fn start(database: &BenchDatabase, peer: Peer, shape: Shape, goal: u64) -> anyhow::Result<Self> {
        let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["work", &name(peer.to_possible_value()), &name(shape.to_possible_value()), &goal.to_string()]);
        command.env("DATABASE_URL", &database.url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a worker process cannot be started")?;
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
    pub(crate) async fn reached(&mut self) -> anyhow::Result<u64> {
        match self.listen().await? {
            Said::Reached { first } => Ok(first),
            Said::Seen(seen) => bail!("the worker ended before it had run all jobs: {seen:?}"),
        }
    }

    /// Ends it, gracefully.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Seen> {
        drop(self.stdin.take());
        let Said::Seen(seen) = self.listen().await? else { bail!("the worker said twice that it had run all jobs") };
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await??;
        ensure!(status.success(), "the worker did not end well: {status}");
        Ok(seen)
    }

    async fn listen(&mut self) -> anyhow::Result<Said> {
        let said = tokio::time::timeout(PATIENCE, self.said.recv()).await.context("the worker has not run its jobs in time")?;
        said.context("the worker ended by itself; what it said of that is above")
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
