//! Injects each planned fault at its planned time, and records its target, start and end.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Result;
use queue_core::{Queue, Store, operate::Scope};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{
    history::Clock,
    plan::{Kind, PlannedFault},
    processes::ProcessGroup,
    proxy::{Mode, Proxy},
    server::lock,
};

/// Injected fault with its actual start and end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Name of the process, or a prefix of the name for a network fault. Empty for a fault of the server or its connections. For a pause,
    /// the name of its scope, or empty if the pause covers everything.
    pub(super) who: String,
    pub(super) from: u64,
    pub(super) until: u64,
    /// Numbers of the jobs that were leased to the worker when it was killed or stopped.
    pub(super) held: Vec<u64>,
    /// Time at which all workers had acknowledged a pause. `None` for all other faults.
    #[serde(default)]
    pub(super) quiet: Option<u64>,
}

/// Injects faults into the processes, and records the faults.
pub(super) struct Injector {
    pub(super) processes: ProcessGroup,
    /// Proxies of the producers' connections.
    pub(super) producers: Vec<Proxy>,
    clock: Clock,
    server: tokio::sync::Mutex<()>,
    operator: tokio::sync::Mutex<()>,
    record: Mutex<(std::fs::File, Vec<Fault>)>,
}

impl Injector {
    pub(super) fn new(processes: ProcessGroup, producers: Vec<Proxy>, record: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(record)?;
        Ok(Self {
            processes,
            producers,
            clock: Clock::new(),
            server: tokio::sync::Mutex::default(),
            operator: tokio::sync::Mutex::default(),
            record: Mutex::new((file, Vec::new())),
        })
    }

    /// Injects all planned faults. Returns the faults with their actual times.
    ///
    /// # Errors
    /// Returns an error if a process or the server cannot be restarted.
    pub(super) async fn run(self: &Arc<Self>, plan: &[PlannedFault]) -> Result<Vec<Fault>> {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for fault in plan.iter().copied() {
            let this = Arc::clone(self);
            tasks.spawn(async move {
                tokio::time::sleep_until((began + fault.at).into()).await;
                this.inject(fault).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(lock(&self.record).1.clone())
    }

    async fn inject(&self, fault: PlannedFault) -> Result<()> {
        match fault.kind {
            Kind::Kill => self.kill(fault).await?,
            Kind::Stop => self.stop(fault).await,
            Kind::Server => self.crash(fault).await?,
            Kind::Terminate => self.terminate(fault).await,
            Kind::Pause => self.pause(fault).await,
            Kind::Cut | Kind::CommitCut | Kind::Delay | Kind::Hole | Kind::Drop => self.disturb(fault).await,
        }
        Ok(())
    }

    fn note(&self, kind: Kind, who: String, from: u64, held: Vec<u64>) {
        self.write(Fault { kind, who, from, until: self.clock.now(), held, quiet: None });
    }

    fn write(&self, fault: Fault) {
        let mut record = lock(&self.record);
        let line = serde_json::to_string(&fault).unwrap_or_default();
        let _ = writeln!(record.0, "{line}");
        record.1.push(fault);
    }

    async fn kill(&self, fault: PlannedFault) -> Result<()> {
        let slot = self.processes.take(fault.target).await;
        let (label, from) = (self.processes.label(slot), self.clock.now());
        self.processes.kill(slot);
        let held = self.held(&label).await;
        self.note(Kind::Kill, label, from, held);
        tokio::time::sleep(fault.lasts).await;
        self.processes.start(slot)?;
        self.processes.leave(slot);
        Ok(())
    }

    async fn stop(&self, fault: PlannedFault) {
        let slot = self.processes.take(fault.target).await;
        let (label, from) = (self.processes.label(slot), self.clock.now());
        self.processes.signal(slot, "STOP");
        let until = Instant::now() + fault.lasts;
        let held = self.held(&label).await;
        tokio::time::sleep_until(until.into()).await;
        self.processes.signal(slot, "CONT");
        self.note(Kind::Stop, label, from, held);
        self.processes.leave(slot);
    }

    async fn crash(&self, fault: PlannedFault) -> Result<()> {
        let _alone = self.server.lock().await;
        let from = self.clock.now();
        self.processes.server.kill()?;
        tokio::time::sleep(fault.lasts).await;
        self.processes.server.restart().await?;
        self.note(Kind::Server, String::new(), from, Vec::new());
        Ok(())
    }

    /// Returns the numbers of the jobs that were leased to a worker when it was killed or stopped. First waits 100 ms, so that the
    /// server can finish the worker's last statements.
    async fn held(&self, label: &str) -> Vec<u64> {
        const HELD: &str = "select (j.payload->>'n')::bigint from queue.worker w join queue.lease l on l.worker = w.id
           cross join unnest(l.ids) u (id) join queue.job j on j.id = u.id where w.name = $1 and j.payload ? 'n'";
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..30 {
            let found = sqlx::query_scalar::<_, i64>(HELD).bind(label).fetch_all(&self.processes.database.pool).await;
            match found {
                Ok(found) => return found.into_iter().map(i64::cast_unsigned).collect(),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Vec::new()
    }

    async fn terminate(&self, fault: PlannedFault) {
        const BACKENDS: &str = "select pid from pg_stat_activity where datname = current_database()
           and (application_name like 'queue-worker%' or application_name = 'producer') order by pid";
        loop {
            let from = self.clock.now();
            let backends: Vec<i32> = sqlx::query_scalar(BACKENDS).fetch_all(&self.processes.database.pool).await.unwrap_or_default();
            if !backends.is_empty() {
                let victim = backends[fault.target % backends.len()];
                let ended =
                    sqlx::query_scalar("select pg_terminate_backend($1)").bind(victim).fetch_one(&self.processes.database.pool).await;
                if ended.unwrap_or(false) {
                    return self.note(Kind::Terminate, String::new(), from, Vec::new());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Pauses a scope until the fault ends. Only one scope is paused at a time. Each operation is retried until it succeeds, because the
    /// server may be down.
    async fn pause(&self, fault: PlannedFault) {
        let _alone = self.operator.lock().await;
        let (pool, store, from) = (&self.processes.database.pool, Store::default(), self.clock.now());
        let (scope, who) = match fault.target % 3 {
            0 => (Scope::EVERYTHING, ""),
            1 => (Scope::queue("chaos"), "the queue"),
            _ => (Scope::job_type("chaos_batch"), "chaos_batch"),
        };
        while Queue::new(pool).store(store).pause_with_reason(&scope, Some("chaos")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while !Queue::new(pool).store(store).until_paused(&scope).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let quiet = Some(self.clock.now());
        tokio::time::sleep(fault.lasts).await;
        self.write(Fault { kind: Kind::Pause, who: who.to_owned(), from, until: self.clock.now(), held: Vec::new(), quiet });
        while Queue::new(pool).store(store).resume(&scope).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn disturb(&self, fault: PlannedFault) {
        let workers = self.processes.proxies.len();
        let mut target = fault.target % (workers + self.producers.len());
        let from = self.clock.now();
        let proxy = |target: usize| if target < workers { &self.processes.proxies[target] } else { &self.producers[target - workers] };
        match fault.kind {
            Kind::Cut => {
                while proxy(target).cut() == 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            // Cuts the next commit of any worker or producer, because a single process may be stopped or idle.
            Kind::CommitCut => {
                while !proxy(target).cut_after_commit(Duration::from_secs(2)).await {
                    target = (target + 1) % (workers + self.producers.len());
                }
            }
            kind => {
                let mode = match kind {
                    Kind::Delay => Mode::Delay(Duration::from_millis(20 + (fault.target % 100) as u64)),
                    Kind::Hole => Mode::Hole,
                    _ => Mode::Drop,
                };
                proxy(target).set(mode);
                tokio::time::sleep(fault.lasts).await;
                proxy(target).set(Mode::Pass);
                if kind == Kind::Drop {
                    proxy(target).cut();
                }
            }
        }
        let who = if target < workers { format!("w{target}.") } else { format!("p{}", target - workers) };
        self.note(fault.kind, who, from, Vec::new());
    }

    /// Removes all network faults.
    pub(super) fn clear_proxies(&self) {
        self.processes.proxies.iter().chain(&self.producers).for_each(|proxy| proxy.set(Mode::Pass));
    }
}

/// Returns the number of faults of each kind.
pub(super) fn count(faults: &[Fault]) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for fault in faults {
        *counts.entry(fault.kind).or_default() += 1;
    }
    counts
}
