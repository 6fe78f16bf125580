//! Heartbeat of a worker.
//!
//! A thread, a runtime and a connection are reserved for heartbeats, so that no handler, pool or lock can stop a heartbeat. A worker
//! whose heartbeat is late fences itself before other workers recover its jobs, and continues under a new identity.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{Mutex, watch},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::{Config, LeaseDeadline, Loop, LoopHealth, StoreConnection, bounded, jittered};
use crate::error::{Error, warn_throttled};

/// Identity of a worker, or `None` while the worker has no lease.
pub(crate) type Identity = Option<Uuid>;

/// Number of busy slots and total number of slots of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) busy: usize,
    pub(crate) slots: usize,
}

/// Function that returns the worker's current load. Called on registration and on each heartbeat.
pub(crate) type LoadNow = Box<dyn Fn() -> Load + Send>;

/// Handle to the heartbeat of a worker.
pub(crate) struct Heartbeat {
    identity: watch::Receiver<Identity>,
    stop: DropGuard,
    beating: HeartbeatRunner,
}

/// Thread or task that runs a heartbeat.
enum HeartbeatRunner {
    /// Dedicated thread for one worker's heartbeat.
    Thread(std::thread::JoinHandle<()>),
    /// Task on a thread shared by the heartbeats of many workers.
    Shared(tokio::task::JoinHandle<()>),
}

impl Heartbeat {
    /// Starts the heartbeat on the runtime `shared`, or on a dedicated thread if `shared` is `None`. The identity is `None` until the
    /// worker is registered in the store.
    pub(crate) fn start(
        (link, shared): (StoreConnection, Option<&Handle>),
        config: &Config,
        types: Vec<String>,
        (lease_deadline, loop_health): (LeaseDeadline, LoopHealth),
        load: LoadNow,
    ) -> Result<Self, Error> {
        let (publish, identity) = watch::channel(None);
        let stop = CancellationToken::new();
        let heartbeat_loop = Arc::new(Mutex::new(HeartbeatLoop { link, config: config.clone(), types, lease_deadline, load, publish }));
        let stopped = stop.clone();
        let beats = loop_health.supervise(Loop::Heartbeat, move || {
            let (heartbeat_loop, stop) = (Arc::clone(&heartbeat_loop), stopped.clone());
            async move { heartbeat_loop.lock().await.run(stop).await }
        });
        let beating = match shared {
            Some(shared) => HeartbeatRunner::Shared(shared.spawn(beats)),
            None => HeartbeatRunner::Thread(beat_alone(beats).map_err(|error| Error::Thread(error.to_string()))?),
        };
        Ok(Self { identity, stop: stop.drop_guard(), beating })
    }

    /// Returns a receiver of the worker's identity. The identity becomes `None` when the lease is lost. Once the worker has a new lease,
    /// the receiver gets a new identity.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.identity.clone()
    }

    /// Deletes the worker's row and ends the heartbeat.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        match self.beating {
            HeartbeatRunner::Thread(thread) => {
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            HeartbeatRunner::Shared(task) => {
                let _ = task.await;
            }
        }
    }
}

fn beat_alone(beats: impl Future<Output = ()> + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("queue heartbeat".to_owned()).spawn(move || runtime.block_on(beats))
}

struct HeartbeatLoop {
    link: StoreConnection,
    config: Config,
    /// Stored names of the job types that this worker can run.
    types: Vec<String>,
    lease_deadline: LeaseDeadline,
    load: LoadNow,
    publish: watch::Sender<Identity>,
}

impl HeartbeatLoop {
    async fn run(&mut self, stop: CancellationToken) {
        // After a panic, this method is called again. The previous identity then has no heartbeat, so the worker is fenced first.
        self.lose();
        while !stop.is_cancelled() {
            let worker = Uuid::new_v4();
            let sent = Instant::now();
            match self.register(worker).await {
                Ok(()) => {
                    self.lease_deadline.extend(sent + self.limit());
                    self.publish.send_replace(Some(worker));
                    self.beat_until_lost(worker, sent, &stop).await;
                    self.lose();
                }
                Err(error) => {
                    warn_throttled(&error, "cannot register this worker; retrying");
                    let _ = tokio::time::timeout(jittered(Duration::from_millis(500)), stop.cancelled()).await;
                }
            }
        }
        let idle = self.link.another();
        std::mem::replace(&mut self.link, idle).close().await;
    }

    /// Fences the worker: withdraws its identity and ends its lease.
    fn lose(&mut self) {
        // The identity is withdrawn before the lease ends. Once the lease has ended, the worker's jobs are dropped and leave the lease
        // registry. Housekeeping releases the leases of the current identity that are not in the registry, but must not release the
        // leases of the dropped jobs.
        self.publish.send_if_modified(|identity| identity.take().is_some());
        self.lease_deadline.end();
    }

    /// Sends three heartbeats per lease TTL. Returns when `stop` is cancelled, or when the lease is lost because a heartbeat was late.
    async fn beat_until_lost(&mut self, worker: Uuid, mut last: Instant, stop: &CancellationToken) {
        let (ttl, limit) = (self.config.lease_ttl, self.limit());
        let mut pause = ttl / 3;
        loop {
            if tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
                let retired = self.retire(worker).await;
                return drop(self.link.note(retired));
            }
            let sent = Instant::now();
            let room = limit.saturating_sub(last.elapsed()).max(Duration::from_millis(100)).min(ttl / 3);
            let beat = tokio::time::timeout(room, self.beat(worker)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
            match self.link.note(beat) {
                Ok(true) => {
                    (last, pause) = (sent, ttl / 3);
                    self.lease_deadline.extend(sent + limit);
                }
                Ok(false) => {
                    return tracing::error!(
                        "heartbeat too late: other workers may have recovered this worker's jobs; continuing under a new identity"
                    );
                }
                Err(error) => {
                    warn_throttled(&error, "heartbeat failed; retrying");
                    pause = (ttl / 20).min(Duration::from_millis(500));
                }
            }
            if last.elapsed() >= limit {
                return tracing::error!("no heartbeat for nearly the whole lease: abandoning all jobs and continuing under a new identity");
            }
        }
    }

    /// Returns the local validity period of the lease after a heartbeat: four fifths of the lease TTL. The remaining fifth of the TTL
    /// covers a commit in flight and clock drift.
    fn limit(&self) -> Duration {
        self.config.lease_ttl / 5 * 4
    }

    async fn register(&mut self, worker: Uuid) -> sqlx::Result<()> {
        let Config { name, store, lease_ttl, queues, .. } = &self.config;
        let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
        let queues: Vec<&str> = queues.iter().map(|(queue, _)| queue.as_str()).collect();
        let statement = sqlx::query(store.sql(include_str!("../../sql/register.sql")))
            .bind(worker)
            .bind(lease_ttl.as_secs_f64() * 1000.0)
            .bind(name)
            .bind(host)
            .bind(std::process::id().cast_signed())
            .bind(env!("CARGO_PKG_VERSION"))
            .bind(queues)
            .bind(&self.types)
            .bind(number((self.load)().slots))
            .bind(memory());
        let done = bounded(statement.execute(self.link.get().await?)).await;
        self.link.note(done).map(drop)
    }

    async fn beat(&mut self, worker: Uuid) -> sqlx::Result<bool> {
        let Config { store, lease_ttl, .. } = &self.config;
        let (statement, load) = (sqlx::query(store.sql(include_str!("../../sql/heartbeat.sql"))), (self.load)());
        let statement = statement.bind(worker).bind(lease_ttl.as_secs_f64() * 1000.0);
        let statement = statement.bind(number(load.busy)).bind(number(load.slots)).bind(memory());
        Ok(statement.fetch_optional(self.link.get().await?).await?.is_some())
    }

    async fn retire(&mut self, worker: Uuid) -> sqlx::Result<()> {
        let statement = sqlx::query(self.config.store.sql(include_str!("../../sql/retire.sql"))).bind(worker);
        let connection = tokio::time::timeout(Duration::from_secs(1), self.link.get()).await.map_err(|_| sqlx::Error::PoolTimedOut)??;
        tokio::time::timeout(Duration::from_secs(1), statement.execute(connection)).await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(drop)
    }
}

fn number(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}

/// Returns the process's resident memory in bytes, or `None` on systems other than Linux.
fn memory() -> Option<i64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_file_or_unknown() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t3\n"), Some(1234 * 1024));
        for odd in ["", "VmRSS:", "VmRSS:\t1 MB", "VmRSS: 99999999999999999999 kB", "VmRSS: 9223372036854775807 kB"] {
            assert_eq!(resident(odd), None, "{odd}");
        }
    }
}
