//! Processes of a run: producers and workers. Workers are killed, stopped and restarted. Each process has a unique name.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    proxy::Proxy,
    server::{Database, TestServer, lock, url},
};
use tests::WorkerProcess;

/// Slots for the worker processes of a run, with the settings for new processes.
pub(super) struct ProcessGroup {
    pub(super) server: TestServer,
    pub(super) database: Database,
    /// Directory of the processes' histories.
    pub(super) folder: PathBuf,
    /// One proxy per worker.
    pub(super) proxies: Vec<Proxy>,
    pub(super) settings: Vec<(String, String)>,
    slots: Vec<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    process: Option<WorkerProcess>,
    label: String,
    started: usize,
    /// Whether a fault injector has reserved the worker.
    taken: bool,
}

impl ProcessGroup {
    /// Creates empty slots for `workers` workers, each with its own proxy.
    pub(super) async fn new(server: &TestServer, database: &Database, folder: &Path, workers: usize) -> Result<Self> {
        let mut proxies = Vec::new();
        for _ in 0..workers {
            proxies.push(Proxy::start(server.port()).await?);
        }
        std::fs::create_dir_all(folder)?;
        let slots = (0..workers).map(|_| Mutex::default()).collect();
        Ok(Self { server: server.clone(), database: database.clone(), folder: folder.to_owned(), proxies, settings: Vec::new(), slots })
    }

    /// Adds environment variables for workers that are started later.
    pub(super) fn with(mut self, settings: &[(&str, &str)]) -> Self {
        self.settings.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self
    }

    /// Starts a worker in each empty slot.
    pub(super) fn start_all(&self) -> Result<()> {
        (0..self.slots.len()).filter(|slot| lock(&self.slots[*slot]).process.is_none()).try_for_each(|slot| self.start(slot))
    }

    /// Starts a worker in the given slot.
    pub(super) fn start(&self, number: usize) -> Result<()> {
        let mut slot = lock(&self.slots[number]);
        slot.started += 1;
        slot.label = format!("w{number}.{}", slot.started);
        let mut settings: Vec<(&str, &str)> = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        settings.extend([("CHAOS_ROLE", "work"), ("CHAOS_LABEL", slot.label.as_str())]);
        let process = self.spawn(self.proxies[number].port, &settings)?;
        slot.process = Some(process);
        Ok(())
    }

    /// Starts this binary in the role that the settings select.
    fn spawn(&self, port: u16, settings: &[(&str, &str)]) -> Result<WorkerProcess> {
        let folder = self.folder.to_str().context("the directory name is not UTF-8")?;
        let all: Vec<(&str, &str)> = settings.iter().copied().chain([("CHAOS_FOLDER", folder)]).collect();
        let process = WorkerProcess::start(std::env::current_exe()?, &url(port, &self.database.name), &all);
        self.server.watch(process.pid());
        Ok(process)
    }

    /// Starts a producer that enqueues `jobs` jobs through the proxy.
    pub(super) fn produce(&self, proxy: &Proxy, slot: usize, jobs: u64, span: Duration, seed: u64) -> Result<WorkerProcess> {
        let (slot, jobs, span, seed) = (slot.to_string(), jobs.to_string(), span.as_millis().to_string(), seed.to_string());
        let label = format!("p{slot}");
        let settings = [
            ("CHAOS_ROLE", "produce"),
            ("CHAOS_LABEL", label.as_str()),
            ("CHAOS_SLOT", slot.as_str()),
            ("CHAOS_JOBS", jobs.as_str()),
            ("CHAOS_SPAN_MS", span.as_str()),
            ("CHAOS_SEED", seed.as_str()),
            ("PGAPPNAME", "producer"),
        ];
        self.spawn(proxy.port, &settings)
    }

    /// Reserves a running worker, searching from slot `from`. First waits until at least two workers are free, so that one worker remains
    /// free for other faults.
    pub(super) async fn take(&self, from: usize) -> usize {
        loop {
            let free: Vec<usize> =
                (0..self.slots.len()).map(|i| (from % self.slots.len() + i) % self.slots.len()).filter(|i| self.is_free(*i)).collect();
            if let [first, _, ..] = free[..] {
                lock(&self.slots[first]).taken = true;
                return first;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn is_free(&self, number: usize) -> bool {
        let slot = lock(&self.slots[number]);
        !slot.taken && slot.process.is_some()
    }

    /// Releases a worker that a fault injector has reserved.
    pub(super) fn leave(&self, number: usize) {
        lock(&self.slots[number]).taken = false;
    }

    /// Returns the name of the worker in the given slot.
    pub(super) fn label(&self, number: usize) -> String {
        lock(&self.slots[number]).label.clone()
    }

    pub(super) fn pid(&self, number: usize) -> Option<u32> {
        lock(&self.slots[number]).process.as_ref().map(WorkerProcess::pid)
    }

    /// Kills a worker with SIGKILL, which leaves its slot empty.
    pub(super) fn kill(&self, number: usize) {
        if let Some(process) = lock(&self.slots[number]).process.take() {
            self.server.unwatch(process.pid());
            process.kill();
        }
    }

    pub(super) fn signal(&self, number: usize, name: &str) {
        if let Some(process) = &lock(&self.slots[number]).process {
            process.signal(name);
        }
    }

    /// Empties the slots of workers that exited without being killed. Returns the number of exited workers.
    pub(super) fn reap(&self) -> usize {
        let mut ended = 0;
        for slot in &self.slots {
            let mut slot = lock(slot);
            if let Some(mut process) = slot.process.take_if(WorkerProcess::has_ended) {
                self.server.unwatch(process.pid());
                process.wait();
                ended += 1;
            }
        }
        ended
    }

    /// Sends SIGTERM to all workers, and waits until they have exited.
    pub(super) fn stop_all(&self) {
        (0..self.slots.len()).for_each(|number| self.signal(number, "TERM"));
        for slot in &self.slots {
            if let Some(mut process) = lock(slot).process.take() {
                process.wait();
                self.server.unwatch(process.pid());
            }
        }
    }
}
