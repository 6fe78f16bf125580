//! Being alive: the heartbeat.
//!
//! The heartbeat has its own thread, runtime and connection: no handler, pool or lock can stop it. A worker that could not beat in time
//! fences itself before others take its jobs, and goes on under a new identity.

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

use super::{Config, Life, Link, Loop, Vitals, bounded, jittered};
use crate::error::{Error, complain};

/// Who this process is, or that it must not act at present.
pub(crate) type Identity = Option<Uuid>;

/// How much a worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// How many slots run something.
    pub(crate) busy: usize,
    /// Of so many.
    pub(crate) slots: usize,
}

/// Asked at each heartbeat.
pub(crate) type LoadNow = Box<dyn Fn() -> Load + Send>;

/// The heartbeat of one worker.
pub(crate) struct Pulse {
    identity: watch::Receiver<Identity>,
    stop: DropGuard,
    beating: Beating,
}

/// Where it beats.
enum Beating {
    /// On a thread of its own.
    Thread(std::thread::JoinHandle<()>),
    /// With the hearts of others, on a thread for those alone.
    Beside(tokio::task::JoinHandle<()>),
}

impl Pulse {
    /// Starts the thread, unless there is one for many hearts. The identity is `None` until the worker has been announced to the store.
    pub(crate) fn start(
        (link, hearts): (Link, Option<&Handle>),
        config: &Config,
        types: Vec<String>,
        (life, vitals): (Life, Vitals),
        load: LoadNow,
    ) -> Result<Self, Error> {
        let (publish, identity) = watch::channel(None);
        let stop = CancellationToken::new();
        let heart = Arc::new(Mutex::new(Heart { link, config: config.clone(), types, life, load, publish }));
        let stopped = stop.clone();
        let beats = vitals.supervise(Loop::Heartbeat, move || {
            let (heart, stop) = (Arc::clone(&heart), stopped.clone());
            async move { heart.lock().await.run(stop).await }
        });
        let beating = match hearts {
            Some(hearts) => Beating::Beside(hearts.spawn(beats)),
            None => Beating::Thread(beat_alone(beats).map_err(|error| Error::Thread(error.to_string()))?),
        };
        Ok(Self { identity, stop: stop.drop_guard(), beating })
    }

    /// Who we are; changes when the lease on life was lost, and again when there is a new one.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.identity.clone()
    }

    /// Takes the worker's row away and ends the thread.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        match self.beating {
            Beating::Thread(thread) => {
                let _ = tokio::task::spawn_blocking(move || thread.join()).await;
            }
            Beating::Beside(task) => {
                let _ = task.await;
            }
        }
    }
}

fn beat_alone(beats: impl Future<Output = ()> + Send + 'static) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("queue heartbeat".to_owned()).spawn(move || runtime.block_on(beats))
}

struct Heart {
    link: Link,
    config: Config,
    /// What this worker can run.
    types: Vec<String>,
    life: Life,
    load: LoadNow,
    publish: watch::Sender<Identity>,
}

impl Heart {
    async fn run(&mut self, stop: CancellationToken) {
        // After a panic nobody has beaten for the identity before.
        self.lose();
        while !stop.is_cancelled() {
            let worker = Uuid::new_v4();
            let sent = Instant::now();
            match self.register(worker).await {
                Ok(()) => {
                    self.life.prolong(sent + self.limit());
                    self.publish.send_replace(Some(worker));
                    self.beat_until_lost(worker, sent, &stop).await;
                    self.lose();
                }
                Err(error) => {
                    complain(&error, "cannot announce this worker; trying again");
                    let _ = tokio::time::timeout(jittered(Duration::from_millis(500)), stop.cancelled()).await;
                }
            }
        }
        let idle = self.link.another();
        std::mem::replace(&mut self.link, idle).close().await;
    }

    /// This process must not act any more.
    fn lose(&mut self) {
        // First, so that who finds a lease of this identity that no handler holds sees that it is over.
        self.publish.send_if_modified(|identity| identity.take().is_some());
        self.life.end();
    }

    /// Beats three times a lease; returns when it was too late, or at the stop.
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
                    self.life.prolong(sent + limit);
                }
                Ok(false) => return tracing::error!("too late for a heartbeat: others may have this worker's jobs; it starts over"),
                Err(error) => {
                    complain(&error, "no heartbeat; trying again");
                    pause = (ttl / 20).min(Duration::from_millis(500));
                }
            }
            if last.elapsed() >= limit {
                return tracing::error!("no heartbeat for nearly the whole lease: this worker drops its jobs and starts over");
            }
        }
    }

    /// How long a heartbeat is relied on. What is left of the ttl covers a commit on its way and the drift of two clocks over one lease.
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
        let (statement, load) = (sqlx::query(store.sql(include_str!("../../sql/beat.sql"))), (self.load)());
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

/// How many bytes of memory this process has, where Linux tells.
fn memory() -> Option<i64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident(status: &str) -> Option<i64> {
    let said = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    said.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_system_says_or_nothing() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t3\n"), Some(1234 * 1024));
        for odd in ["", "VmRSS:", "VmRSS:\t1 MB", "VmRSS: 99999999999999999999 kB", "VmRSS: 9223372036854775807 kB"] {
            assert_eq!(resident(odd), None, "{odd}");
        }
    }
}
