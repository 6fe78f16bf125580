//! Lifecycle of a store's worker. A store gets a worker when jobs or maintenance are pending. The worker is stopped when no work is
//! pending.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use queue_core::{
    migrate,
    runner::{locate, verify_worker},
    stores::Member,
};
use sqlx::PgPool;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    database::StoreDatabase,
    poller::{self, PendingWork},
    store_entry::{ServedScope, StoreEntry},
};
use crate::{
    error::Error,
    live::{ConnectionFactory, Engine, LeaseDeadline, LoopHealth, StoreConnection},
    run::SharedSlots,
    tally::MetricsBuffer,
    worker::{CheckedWorker, RunningWorker, SharedResources, Worker},
};

/// Application callback that configures each store's worker.
pub(super) type WorkerFactory = dyn Fn(&Member, Worker) -> Worker + Send + Sync;

/// Settings and resources shared by all stores of the process.
pub(super) struct SharedContext {
    pub(super) make: Arc<WorkerFactory>,
    pub(super) shares: SharedSlots,
    pub(super) loops: Engine,
    pub(super) heartbeats: Engine,
    /// Runtime that runs the handlers of all stores.
    pub(super) handlers: Handle,
    pub(super) upkeeps: Semaphore,
    pub(super) linger: Duration,
    pub(super) upkeep: Duration,
    pub(super) stop: CancellationToken,
}

/// Loop that starts and stops the worker of one store.
pub(super) struct StoreLoop {
    pub(super) common: Arc<SharedContext>,
    pub(super) database: Arc<StoreDatabase>,
    pub(super) entry: Arc<StoreEntry>,
    /// Cancelled when the store is removed from the roster.
    pub(super) removed: CancellationToken,
}

/// Interval at which a store loop checks whether the store's worker still has pending work.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Idle time after which a worker that was started for maintenance is stopped.
const UPKEEP_LINGER: Duration = Duration::from_millis(300);

/// Time after which an idle worker whose claims keep failing is stopped. A new worker is started once the store works again.
const MAX_FAILING: Duration = Duration::from_secs(5);

/// Timeout for the checks before a worker is started. A store that exceeds the timeout counts as failed.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time for which a store's maintenance can delay the maintenance of other stores.
const UPKEEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Pruning interval of a store, as in a worker for a single store.
const PRUNE_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum poll interval of a worker without notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Reason why a store gets a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartReason {
    HasWork,
    Upkeep,
}

/// Reason why a store's worker stops.
enum StopReason {
    /// The worker has no pending work.
    Idle,
    /// The process is shutting down, or the store was removed from the roster.
    Requested,
    /// The store or its worker has failed. Contains the reason.
    Failed(&'static str),
}

/// Returns the job types and queues that a store's worker serves, and the pool for the worker's dedicated connections.
pub(super) fn served_scope(common: &SharedContext, member: &Member) -> Result<(ServedScope, PgPool), Error> {
    let worker = make_worker(common, member)?;
    let CheckedWorker { config, parts, direct, .. } =
        worker.check((LoopHealth::default(), LeaseDeadline::new(), MetricsBuffer::default()), None)?;
    let queues = (!config.queues.is_empty()).then(|| config.queues.iter().map(|(queue, _)| queue.clone()).collect());
    Ok((ServedScope { types: parts.job_types(), queues }, direct))
}

/// Calls the application callback that configures a worker. If the callback panics, the store counts as failed.
fn make_worker(common: &SharedContext, member: &Member) -> Result<Worker, Error> {
    let make = || (common.make)(member, Worker::new(member.pool().clone()));
    catch_unwind(AssertUnwindSafe(make)).map_err(|_| Error::SetupPanicked)
}

impl StoreLoop {
    /// Runs the loop until the process shuts down or the store is removed.
    pub(super) async fn run(self) {
        let (common, entry) = (&self.common, &self.entry);
        // The first maintenance starts at a random time, which distributes the load of many stores.
        let (mut upkeep, mut pruned) = (Instant::now() + Duration::from_secs(2).mul_f64(fastrand::f64()), None::<Instant>);
        loop {
            let reason = tokio::select! {
                biased;
                () = common.stop.cancelled() => return,
                () = self.removed.cancelled() => return,
                () = entry.work_requested() => StartReason::HasWork,
                () = sleep_until(upkeep.into()) => StartReason::Upkeep,
            };
            if reason == StartReason::Upkeep && entry.is_unreachable() {
                upkeep = Instant::now() + PRUNE_INTERVAL;
                continue;
            }
            let turn = match reason {
                StartReason::HasWork => None,
                StartReason::Upkeep => tokio::select! {
                    turn = common.upkeeps.acquire() => turn.ok(),
                    () = common.stop.cancelled() => return,
                    () = self.removed.cancelled() => return,
                },
            };
            let prune_in = pruned.map_or(Duration::ZERO, |at| (at + PRUNE_INTERVAL).saturating_duration_since(Instant::now()));
            let prune_in = if reason == StartReason::Upkeep { Duration::ZERO } else { prune_in };
            let loop_health = LoopHealth::default();
            entry.set_awake(true);
            let mut work = pin!(self.run_worker(reason, &loop_health, prune_in));
            let stopped = tokio::select! {
                stopped = &mut work => stopped,
                // Another store may start its maintenance once this store is pruned or the timeout has passed.
                _ = timeout(UPKEEP_TIMEOUT, has_pruned(&loop_health)) => {
                    drop(turn);
                    work.await
                }
            };
            let is_tried = loop_health.prunes.load(Relaxed) > 0;
            if is_tried {
                pruned = Some(Instant::now());
            }
            if loop_health.pruned.age().is_some() {
                upkeep = Instant::now() + common.upkeep.mul_f64(0.75 + 0.5 * fastrand::f64());
            } else if is_tried || reason == StartReason::Upkeep {
                // Not all maintenance tasks have succeeded, so maintenance is retried soon.
                upkeep = Instant::now() + PRUNE_INTERVAL;
            }
            match stopped {
                Ok(StopReason::Idle) => {}
                Ok(StopReason::Requested) => return,
                Ok(StopReason::Failed(why)) => entry.record_failure(why),
                Err(error) => entry.record_failure(&error.to_string()),
            }
            entry.set_awake(false);
        }
    }

    /// Runs a worker for the store until no work is pending, the worker fails, or a stop is requested.
    async fn run_worker(&self, reason: StartReason, loop_health: &LoopHealth, prune_in: Duration) -> Result<StopReason, Error> {
        let Self { common, database, entry, .. } = self;
        let (factory, heartbeat, prune, listen_handle) =
            (database.factory(entry.number), database.heartbeat(entry.number), database.prune(entry.number), database.listen_handle());
        let ran = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ran);
        let (member, share) = (&entry.member, common.shares.of(entry.number));
        let worker = make_worker(common, member)?.store(member.store()).on_outcome(move |_| {
            counted.fetch_add(1, Relaxed);
        });
        let polled = listen_handle.is_none();
        let resources =
            SharedResources { share, heartbeats: common.heartbeats.beside(loop_health), heartbeat, prune, listen_handle, prune_in };
        let checked = worker.check((loop_health.clone(), LeaseDeadline::new(), MetricsBuffer::default()), Some(resources))?;
        let CheckedWorker { pool, mut config, ready, parts, .. } = checked;
        if polled {
            config.poll_interval = config.poll_interval.min(POLL_INTERVAL);
        }
        let check = timeout(START_TIMEOUT, self.check_store(&factory));
        let checked = tokio::select! {
            checked = check => checked,
            () = common.stop.cancelled() => return Ok(StopReason::Requested),
            () = self.removed.cancelled() => return Ok(StopReason::Requested),
        };
        match checked {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(why))) => return Ok(StopReason::Failed(why)),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Ok(StopReason::Failed("it does not answer")),
        }
        let running = {
            let _of_handlers = common.handlers.enter();
            let running = RunningWorker::start(&common.loops.beside(loop_health), (&pool, &factory), &config, parts)?;
            running.call_ready_hooks(ready);
            running
        };
        tracing::debug!(store = member.name(), "this store has a worker");
        let stopped = self.run_until_idle(reason, (loop_health, &ran), &running, poller::link(&factory)).await;
        if matches!(stopped, StopReason::Requested) && !common.stop.is_cancelled() {
            self.drain(&running).await;
        }
        loop_health.stop();
        running.stop(config.grace).await;
        tracing::debug!(store = member.name(), "this store's worker has stopped");
        Ok(stopped)
    }

    /// Checks whether the store can have a worker. Returns the reason why the store cannot have a worker, or `None` if it can.
    async fn check_store(&self, factory: &ConnectionFactory) -> Result<Option<&'static str>, Error> {
        let (mut link, store) = (StoreConnection::new(factory, "verify").impatient().brief(), self.entry.member.store());
        self.database.check(&mut link).await?;
        // After an error, the connection is dropped instead of being returned for reuse.
        verify_worker(link.get().await?, store).await?;
        migrate::verify(link.get().await?, store).await?;
        let owner = locate(link.get().await?, store).await;
        Ok(link.note(owner)?.map(|_| "it is distributed over a Citus cluster, and needs a `Worker` of its own"))
    }

    async fn run_until_idle(
        &self,
        reason: StartReason,
        (loop_health, ran): (&LoopHealth, &AtomicU64),
        running: &RunningWorker,
        mut link: StoreConnection,
    ) -> StopReason {
        let (mut quiet, mut seen) = (Instant::now(), 0);
        let linger = if reason == StartReason::Upkeep { UPKEEP_LINGER } else { self.common.linger };
        loop {
            tokio::select! {
                () = sleep(CHECK_INTERVAL) => {}
                () = self.removed.cancelled() => return StopReason::Requested,
                () = self.common.stop.cancelled() => return StopReason::Requested,
            }
            let (now, is_idle) = (ran.load(Relaxed), running.is_idle());
            if loop_health.failing.age().is_some_and(|age| age > MAX_FAILING) && is_idle {
                return StopReason::Failed("its worker cannot claim");
            }
            if let Some(ended) = loop_health.ended() {
                tracing::error!(
                    store = self.entry.member.name(),
                    ended,
                    "a loop of this store's worker has ended; starting another worker"
                );
                return StopReason::Failed("a loop of its worker has ended");
            }
            let is_announced = running.identity().borrow().is_some();
            if is_announced && loop_health.failing.age().is_none() && (!is_idle || now != seen || quiet.elapsed() >= linger) {
                self.entry.record_recovered();
            }
            if !is_idle || now != seen || !is_announced {
                (quiet, seen) = (Instant::now(), now);
            }
            let is_kept = reason == StartReason::HasWork || loop_health.prunes.load(Relaxed) > 0;
            if quiet.elapsed() >= linger && is_kept {
                match poller::query_work(&mut link, &[&self.entry]).await.as_deref() {
                    Ok([PendingWork::Nothing]) => return StopReason::Idle,
                    // Work is pending, or the query failed. The worker's loops encounter and log the same error.
                    _ => quiet = Instant::now(),
                }
            }
        }
    }

    /// Stops claiming and waits for running jobs. The wait ends early if the process shuts down.
    async fn drain(&self, running: &RunningWorker) {
        running.stop_claiming();
        while !running.is_idle() && !self.common.stop.is_cancelled() {
            sleep(CHECK_INTERVAL).await;
        }
    }
}

async fn has_pruned(loop_health: &LoopHealth) {
    while loop_health.prunes.load(Relaxed) == 0 {
        sleep(CHECK_INTERVAL).await;
    }
}
