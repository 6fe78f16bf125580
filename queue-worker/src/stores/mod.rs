//! One worker process over many stores.
//!
//! A store in which there is nothing to do has no worker: a scout looks at all stores of a database together, over one connection, and a store in which
//! it finds something is given a worker of its own, which is that of [`Worker`] in all but where its connections and slots come from. It is let go
//! when nothing is left to do. So what idle stores cost is what the scout asks, however many workers they would need.

mod life;
mod scout;
mod site;
mod tend;
mod watched;

use std::{sync::Arc, time::Duration};

use queue_core::stores::{Member, Roster};
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use self::{
    life::{Common, Make},
    tend::tend,
};
use crate::{
    error::Error,
    live::{Engine, Life, Vitals},
    run::SharedSlots,
    tally::Tallies,
    worker::Worker,
};

/// Runs the jobs of many stores, in one process.
///
/// Each store that has something to do is given a [`Worker`], by what this is made with; the others cost next to nothing. Slots are shared: so many
/// handlers run at once over all stores, and what is free goes to the store that has fewest. Connections of stores of one database are shared, too.
/// A store that fails, is locked, dropped or not migrated stops alone; that is said at `warn`, and it goes on once it is well.
///
/// Stores that are added to the roster are picked up, and one that is removed is let go once its running jobs have ended.
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
    make: Arc<Make>,
    slots: usize,
    linger: Duration,
    upkeep: Duration,
}

/// Handlers at once over all stores, unless it is said.
const SLOTS: usize = 100;

/// So many stores are seen to at once that have nothing but housekeeping to do.
const UPKEEPS: usize = 4;

impl StoresWorker {
    /// Over the stores of this roster. `make` is given a worker over the store's pool whenever its store has something to do, and says what is to be
    /// said of it: queues, state, settings. Its store is the member's, whatever is said; where health checks are answered is not heeded, and where its own
    /// connections lead ([`Worker::direct`]) is that of the first store of a database.
    pub fn new(roster: &Roster, make: impl Fn(&Member, Worker) -> Worker + Send + Sync + 'static) -> Self {
        let (linger, upkeep) = (Duration::from_secs(5), Duration::from_hours(1));
        Self { roster: roster.clone(), make: Arc::new(make), slots: SLOTS, linger, upkeep }
    }

    /// How many handlers run at once over all stores. Default 100. What a store's own queues allow holds besides. Transactional jobs are not counted.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// For how long a store keeps its worker after its last job. Default 5 s: a worker begins with some 60 statements.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How often a store in which nothing happens is tidied: what is kept no longer is deleted, and partitions of days to come are made. Default 1 h.
    pub fn upkeep(mut self, upkeep: Duration) -> Self {
        self.upkeep = upkeep;
        self
    }

    /// Runs jobs until `shutdown` completes, then stops as [`Worker::run`] does, in all stores at once.
    ///
    /// # Errors
    /// Before the first job: a setting out of range, or job types that cannot be run. What is wrong with a store stops that store only.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        #[cfg(feature = "logs")]
        crate::logs::log_to_stderr_by_default();
        let Self { roster, make, slots, linger, upkeep } = self;
        if !(1..=100_000).contains(&slots) {
            return Err(Error::Config { key: "slots", value: slots.to_string(), range: "1 to 100000" });
        }
        for member in roster.all().iter().take(1) {
            let worker = make(member, Worker::new(member.pool().clone()));
            worker.checked((Vitals::default(), Life::new(), Tallies::default()), None)?;
        }
        let thread = |error: std::io::Error| Error::Thread(error.to_string());
        let (loops, hearts) = (Engine::start("queue engine").map_err(thread)?, Engine::start("queue hearts").map_err(thread)?);
        let (unwatched, stop) = (Vitals::default(), CancellationToken::new());
        let common = Common {
            make,
            shares: SharedSlots::new(slots),
            // Those end with the others, which are ours: dropped half-way, this future takes all workers with it.
            loops: loops.beside(&unwatched),
            hearts: hearts.beside(&unwatched),
            handlers: Handle::current(),
            upkeeps: Semaphore::new(UPKEEPS),
            linger,
            upkeep,
            stop: stop.clone(),
        };
        tracing::info!(stores = roster.all().len(), slots, "worker of many stores started");
        let tending = loops.handle().spawn(tend(Arc::new(common), roster.watch()));
        tokio::pin!(tending);
        tokio::select! {
            () = shutdown => tracing::info!("shutting down"),
            _ = &mut tending => {
                // Nothing more is claimed: nobody would look after it.
                stop.cancel();
                return Err(Error::Untended);
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
