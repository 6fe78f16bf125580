//! Does the planned faults, each in its time, and writes down what was done to whom from when to when.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Result;
use queue_core::{
    Store,
    operate::{self, Scope},
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{
    crew::Crew,
    history::Clock,
    plan::{Kind, Planned},
    proxy::{Mode, Proxy},
    server::lock,
};

/// A fault as it happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// Which process; empty for the server and its connections. Of a pause: which job type, empty for all.
    pub(super) who: String,
    pub(super) from: u64,
    pub(super) until: u64,
    /// The numbers of the jobs that a killed or stopped worker held.
    pub(super) held: Vec<u64>,
    /// Of a pause: from when on every worker had said that nothing begins there.
    #[serde(default)]
    pub(super) quiet: Option<u64>,
}

/// Who is hurt, and the record of it.
pub(super) struct Injector {
    pub(super) crew: Crew,
    /// Of the producers.
    pub(super) producers: Vec<Proxy>,
    clock: Clock,
    server: tokio::sync::Mutex<()>,
    operator: tokio::sync::Mutex<()>,
    record: Mutex<(std::fs::File, Vec<Fault>)>,
}

impl Injector {
    pub(super) fn new(crew: Crew, producers: Vec<Proxy>, record: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(record)?;
        Ok(Self {
            crew,
            producers,
            clock: Clock::new(),
            server: tokio::sync::Mutex::default(),
            operator: tokio::sync::Mutex::default(),
            record: Mutex::new((file, Vec::new())),
        })
    }

    /// Does all of them; returns what was done.
    ///
    /// # Errors
    /// When a process or the server cannot be started again.
    pub(super) async fn run(self: &Arc<Self>, plan: &[Planned]) -> Result<Vec<Fault>> {
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

    async fn inject(&self, fault: Planned) -> Result<()> {
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

    async fn kill(&self, fault: Planned) -> Result<()> {
        let slot = self.crew.take(fault.target).await;
        let (label, from) = (self.crew.label(slot), self.clock.now());
        self.crew.kill(slot);
        let held = self.held(&label).await;
        self.note(Kind::Kill, label, from, held);
        tokio::time::sleep(fault.lasts).await;
        self.crew.start(slot)?;
        self.crew.leave(slot);
        Ok(())
    }

    async fn stop(&self, fault: Planned) {
        let slot = self.crew.take(fault.target).await;
        let (label, from) = (self.crew.label(slot), self.clock.now());
        self.crew.signal(slot, "STOP");
        let until = Instant::now() + fault.lasts;
        let held = self.held(&label).await;
        tokio::time::sleep_until(until.into()).await;
        self.crew.signal(slot, "CONT");
        self.note(Kind::Stop, label, from, held);
        self.crew.leave(slot);
    }

    async fn crash(&self, fault: Planned) -> Result<()> {
        let _alone = self.server.lock().await;
        let from = self.clock.now();
        self.crew.server.kill()?;
        tokio::time::sleep(fault.lasts).await;
        self.crew.server.restart().await?;
        self.note(Kind::Server, String::new(), from, Vec::new());
        Ok(())
    }

    /// What a worker that was just killed or stopped holds, by the numbers of its jobs. What the server still does for it is waited for.
    async fn held(&self, label: &str) -> Vec<u64> {
        const HELD: &str = "select (j.payload->>'n')::bigint from queue.worker w join queue.lease l on l.worker = w.id
           cross join unnest(l.ids) u (id) join queue.job j on j.id = u.id where w.name = $1 and j.payload ? 'n'";
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..30 {
            let found = sqlx::query_scalar::<_, i64>(HELD).bind(label).fetch_all(&self.crew.database.pool).await;
            match found {
                Ok(found) => return found.into_iter().map(i64::cast_unsigned).collect(),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Vec::new()
    }

    async fn terminate(&self, fault: Planned) {
        const BACKENDS: &str = "select pid from pg_stat_activity where datname = current_database()
           and (application_name like 'queue-worker%' or application_name = 'producer') order by pid";
        loop {
            let from = self.clock.now();
            let backends: Vec<i32> = sqlx::query_scalar(BACKENDS).fetch_all(&self.crew.database.pool).await.unwrap_or_default();
            if !backends.is_empty() {
                let victim = backends[fault.target % backends.len()];
                let ended = sqlx::query_scalar("select pg_terminate_backend($1)").bind(victim).fetch_one(&self.crew.database.pool).await;
                if ended.unwrap_or(false) {
                    return self.note(Kind::Terminate, String::new(), from, Vec::new());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One at a time. Each step is tried until it is done, for the server may be away.
    async fn pause(&self, fault: Planned) {
        let _alone = self.operator.lock().await;
        let (pool, store, from) = (&self.crew.database.pool, Store::default(), self.clock.now());
        let (scope, who) = match fault.target % 3 {
            0 => (Scope::EVERYTHING, ""),
            1 => (Scope::queue("chaos"), "the queue"),
            _ => (Scope::job_type("chaos_batch"), "chaos_batch"),
        };
        while operate::pause(pool, store, &scope, Some("chaos")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while !operate::until_paused(pool, store, &scope).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let quiet = Some(self.clock.now());
        tokio::time::sleep(fault.lasts).await;
        self.write(Fault { kind: Kind::Pause, who: who.to_owned(), from, until: self.clock.now(), held: Vec::new(), quiet });
        while operate::resume(pool, store, &scope).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn disturb(&self, fault: Planned) {
        let workers = self.crew.proxies.len();
        let mut target = fault.target % (workers + self.producers.len());
        let from = self.clock.now();
        let proxy = |target: usize| if target < workers { &self.crew.proxies[target] } else { &self.producers[target - workers] };
        match fault.kind {
            Kind::Cut => {
                while proxy(target).cut() == 0 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            // Whoever commits next, if the first one is stopped or has nothing to do.
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

    /// Lets everything through again.
    pub(super) fn calm(&self) {
        self.crew.proxies.iter().chain(&self.producers).for_each(|proxy| proxy.set(Mode::Pass));
    }
}

/// How many of each kind.
pub(super) fn count(faults: &[Fault]) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for fault in faults {
        *counts.entry(fault.kind).or_default() += 1;
    }
    counts
}
