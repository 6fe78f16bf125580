//! Durable jobs under faults. Steps, sleeps, signals, children and maps run in processes that are killed, stopped and disconnected.
//!
//! ```text
//! run: inject a plan while jobs are enqueued and signals are sent (send); then drain; then account (histories x faults x rows)
//! fleet: all jobs sleep, all workers are killed, and another release continues
//! ```

mod account;
mod fleet;
mod send;
mod work;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    history,
    inject::Injector,
    plan::{Kind, plan},
    processes::ProcessGroup,
    proxy::Proxy,
    run::{LEFT, broken},
    server::{Database, TestServer},
};

pub(super) use account::DurableFindings;
pub(super) use fleet::{FleetResult, fleet};
pub(super) use work::{Leaf, Parent, Sleeper};

/// Size and faults of a run with durable jobs.
#[derive(Clone)]
pub(super) struct DurableScale {
    pub(super) parents: u64,
    /// Number of parts per map. Each parent also has one child.
    parts: u64,
    /// Number of signals per parent. One additional signal per parent may arrive after the wait for it has timed out.
    signals: u32,
    workers: usize,
    /// Concurrency per worker, low enough that no single worker can hold all jobs.
    concurrency: u32,
    /// Time during which faults are injected and jobs are enqueued.
    span: Duration,
    /// Maximum duration of a sender's transaction.
    held: Duration,
    pub(super) faults: Vec<(Kind, usize)>,
    /// Maximum time without progress during the final drain.
    patience: Duration,
}

impl DurableScale {
    pub(super) fn full() -> Self {
        let faults = [(Kind::Kill, 60), (Kind::Stop, 20), (Kind::Server, 6), (Kind::Terminate, 40), (Kind::Cut, 20)];
        let network = [(Kind::CommitCut, 60), (Kind::Delay, 8), (Kind::Hole, 6), (Kind::Drop, 6)];
        Self {
            parents: 3000,
            parts: 8,
            signals: 3,
            workers: 4,
            concurrency: 20,
            span: Duration::from_mins(4),
            held: Duration::from_secs(30),
            faults: faults.into_iter().chain(network).collect(),
            patience: Duration::from_secs(40),
        }
    }

    pub(super) fn quick() -> Self {
        let faults = [(Kind::Kill, 7), (Kind::Stop, 2), (Kind::Server, 1), (Kind::Terminate, 4), (Kind::Cut, 3)];
        let network = [(Kind::CommitCut, 6), (Kind::Delay, 1), (Kind::Hole, 1), (Kind::Drop, 1)];
        Self {
            parents: 150,
            workers: 3,
            span: Duration::from_secs(15),
            held: Duration::from_secs(3),
            faults: faults.into_iter().chain(network).collect(),
            patience: Duration::from_secs(20),
            ..Self::full()
        }
    }

    /// Returns the scale that `--bugs` uses for its scene with durable jobs.
    pub(super) fn scene() -> Self {
        Self {
            parents: 80,
            workers: 2,
            concurrency: 8,
            span: Duration::from_secs(8),
            held: Duration::from_secs(1),
            faults: vec![(Kind::Kill, 8), (Kind::CommitCut, 3)],
            patience: Duration::from_secs(12),
            ..Self::quick()
        }
    }

    /// Returns the number of jobs that each parent spawns.
    fn leaves(&self) -> u64 {
        1 + self.parts
    }
}

/// Injects faults while durable jobs run in a separate database. Then waits without faults until all jobs are finished, and checks the
/// jobs.
pub(super) async fn run(server: &TestServer, folder: &Path, seed: u64, size: &DurableScale) -> Result<DurableFindings> {
    let database = server.database("durable").await?;
    let processes = ProcessGroup::new(server, &database, folder, size.workers).await?;
    let processes = processes.with(&[("CHAOS_TTL_MS", "3000"), ("CHAOS_CONCURRENCY", size.concurrency.to_string().as_str())]);
    let sender = Proxy::start(server.port()).await?;
    let pool = send::pool(sender.port, &database.name)?;
    processes.start_all()?;
    let injector = Arc::new(Injector::new(processes, vec![sender], &folder.join("faults.jsonl"))?);
    let producing = tokio::spawn(send::produce(database.clone(), pool.clone(), seed, size.clone()));
    let faults = injector.run(&plan(seed, size.span, &size.faults)).await?;
    injector.clear_proxies();
    let ended = injector.processes.reap();
    let sent = producing.await??;
    injector.processes.start_all()?;
    let drained = drain(&database, size.patience).await?;
    injector.processes.stop_all();
    pool.close().await;
    let mut account = account(&database, folder, &faults, &sent, size.parents, size.leaves()).await?;
    account.ended = ended;
    account.left |= !drained;
    Ok(account)
}

/// Waits until no job is queued or running. Returns `false` if no step was journaled and no job finished for `patience`. The number of
/// queued jobs does not measure progress, because jobs spawn other jobs.
async fn drain(database: &Database, patience: Duration) -> Result<bool> {
    const DONE: &str =
        "select (select count(*) from queue.step) + (select count(*) from queue.done) + (select count(*) from queue.done_many)
       + (select count(*) from queue.dead)";
    let (mut most, mut until) = (0, Instant::now() + patience);
    while Instant::now() < until {
        if database.count(LEFT).await? == 0 {
            return Ok(true);
        }
        let done = database.count(DONE).await?;
        if done > most {
            (most, until) = (done, Instant::now() + patience);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(false)
}

/// Checks the histories and the final rows of `parents` parent jobs, each of which spawns `leaves` jobs.
async fn account(
    database: &Database,
    folder: &Path,
    faults: &[super::inject::Fault],
    sent: &[send::SentSignal],
    parents: u64,
    leaves: u64,
) -> Result<DurableFindings> {
    let rows = account::FinalRows::read(database).await?;
    let mut account = account::check(&history::read(folder)?, faults, &rows, sent, (parents, leaves));
    account.faults = faults.to_vec();
    account.broken = broken(database).await?;
    Ok(account)
}
