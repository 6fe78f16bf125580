//! Worker process for many stores.
//!
//! A store without pending jobs or maintenance has no worker. One poller per database queries all stores in the database over one
//! connection. A store with pending work gets a [`Worker`]. The workers of different stores share connections and slots. A worker is
//! stopped when its store has no pending work. Idle stores therefore cost only the poller's queries, regardless of their number.

mod store_loop;
mod poller;
mod database;
mod supervisor;
mod store_entry;

use std::{sync::Arc, time::Duration};

use queue_core::stores::{Member, Roster};
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use self::{
    store_loop::{SharedContext, WorkerFactory},
    supervisor::supervise,
};
use crate::{
    error::Error,
    live::{Engine, LeaseDeadline, LoopHealth},
    run::SharedSlots,
    tally::MetricsBuffer,
    worker::Worker,
};

/// Runs the jobs of many stores in one process.
///
/// Each store with pending jobs or maintenance gets a [`Worker`] from the function passed to [`StoresWorker::new`]. Idle stores cost
/// almost nothing. All stores share the handler slots, and a free slot goes to the store that uses the fewest slots. Stores in the same
/// database also share connections.
///
/// If a store fails, is locked or dropped, or is not migrated, other stores are not affected. The failure is logged at `warn`, and the
/// store resumes once it works again.
///
/// A store that is added to the roster is started. A store that is removed from the roster is stopped once its running jobs have ended.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_core::{Store, stores::{Member, Roster}};
/// use queue_worker::{StoresWorker, shutdown_signal};
///
/// let roster = Roster::default();
/// for tenant in ["acme", "globex"] {
///     roster.put(Member::new(tenant, &pool, Store::new(tenant)?)?);
/// }
/// StoresWorker::new(&roster, |_, worker| worker.queue("mail", 20)).slots(50).run(shutdown_signal()).await
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct StoresWorker {
    roster: Roster,
    make: Arc<WorkerFactory>,
    slots: usize,
    linger: Duration,
    upkeep: Duration,
}

/// Default maximum number of concurrent handlers across all stores.
const SLOTS: usize = 100;

/// Maximum number of idle stores whose maintenance runs concurrently.
const UPKEEPS: usize = 4;

impl StoresWorker {
    /// Creates a worker for the stores in a roster.
    ///
    /// `make` is called whenever a store gets a worker, and once for the first store when [`StoresWorker::run`] checks the settings. The
    /// function receives a worker with the store's pool, and configures the worker's queues, state and settings. The worker always serves
    /// the member's store. An address for health checks is ignored. The pool for dedicated connections ([`Worker::direct`]) is taken from
    /// the first store in each database.
    pub fn new(roster: &Roster, make: impl Fn(&Member, Worker) -> Worker + Send + Sync + 'static) -> Self {
        let (linger, upkeep) = (Duration::from_secs(5), Duration::from_hours(1));
        Self { roster: roster.clone(), make: Arc::new(make), slots: SLOTS, linger, upkeep }
    }

    /// Sets the maximum number of concurrent handlers across all stores. Default: 100. The limits of each store's queues also apply.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Sets the time for which a store keeps its worker after the last job. Default: 5 s. Starting a worker takes about 60 statements.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the maintenance interval of an idle store. Default: 1 h. Maintenance deletes expired history and creates partitions in advance.
    pub fn upkeep(mut self, upkeep: Duration) -> Self {
        self.upkeep = upkeep;
        self
    }

    /// Runs jobs until `shutdown` completes. All stores are then stopped concurrently, each as described in [`Worker::run`].
    ///
    /// # Errors
    /// Returns an error before the first job if a setting is out of range or a job type is invalid. The failure of a store stops only
    /// that store. Returns [`Error::SupervisorPanicked`] if the task that supervises the stores panics.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        #[cfg(feature = "logs")]
        crate::logs::log_to_stderr_by_default();
        let Self { roster, make, slots, linger, upkeep } = self;
        if !(1..=100_000).contains(&slots) {
            return Err(Error::Config { key: "slots", value: slots.to_string(), range: "1 to 100000" });
        }
        for member in roster.all().iter().take(1) {
            let worker = make(member, Worker::new(member.pool().clone()));
            worker.check((LoopHealth::default(), LeaseDeadline::new(), MetricsBuffer::default()), None)?;
        }
        let thread = |error: std::io::Error| Error::Thread(error.to_string());
        let (loops, heartbeats) = (Engine::start("queue engine").map_err(thread)?, Engine::start("queue heartbeats").map_err(thread)?);
        let (unwatched, stop) = (LoopHealth::default(), CancellationToken::new());
        let common = SharedContext {
            make,
            shares: SharedSlots::new(slots),
            // These handles do not keep the threads alive, so dropping this future ends the threads and drops all workers.
            loops: loops.beside(&unwatched),
            heartbeats: heartbeats.beside(&unwatched),
            handlers: Handle::current(),
            upkeeps: Semaphore::new(UPKEEPS),
            linger,
            upkeep,
            stop: stop.clone(),
        };
        tracing::info!(stores = roster.all().len(), slots, "multi-store worker started");
        let tending = loops.handle().spawn(supervise(Arc::new(common), roster.watch()));
        tokio::pin!(tending);
        tokio::select! {
            () = shutdown => tracing::info!("shutting down"),
            _ = &mut tending => {
                // All workers stop claiming, because no task supervises the stores any more.
                stop.cancel();
                return Err(Error::SupervisorPanicked);
            }
        }
        stop.cancel();
        let _ = tending.await;
        tracing::info!("worker stopped");
        Ok(())
    }
}

impl std::fmt::Debug for StoresWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoresWorker").field("roster", &self.roster).field("slots", &self.slots).finish_non_exhaustive()
    }
}
