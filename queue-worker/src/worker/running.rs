//! Running worker. This module starts the worker's loops, and stops them in the right order.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::{
    options::{Durability, Options},
    runner::{ReportSender, Shared},
};
use sqlx::PgPool;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    drain_notice::DrainNotice,
    fence::{AbandonOnDrop, call_ready_hooks, fence},
    parts::{SharedResources, WorkerParts},
    reporting::{FlusherHandle, ReportingLoops, shared_state},
    stop::{STOP_TIMEOUT, give_back, wait_until_idle},
};
use crate::{
    claim::{Poller, write_slow_downs},
    error::Error,
    keep::{Housekeeper, ScheduleLoop, run_housekeeper, run_pruning, run_schedules},
    lanes::{LeaseRegistry, PayloadMemory, stored_types},
    live::{Config, ConnectionFactory, Engine, Heartbeat, Identity, Loop, LoopHealth, Notifier, Pauses, StoreConnection},
    run::{Queues, SlotContext},
    settle::{DatabaseBackend, JournalSender, LogSender, SignalSender, settle_all},
};

/// Handles to a running worker's loops.
pub(crate) struct RunningWorker {
    queues: Arc<Queues>,
    stop: CancellationToken,
    closing: CancellationToken,
    claims: JoinHandle<()>,
    settles: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
    flusher: FlusherHandle,
    drain_notice: DrainNotice,
    heartbeat: Heartbeat,
    _abandon: AbandonOnDrop,
}

/// Maximum number of verdicts queued for the settle loop. Slots wait while the queue is full.
const MAX_UNSETTLED: usize = 4096;

/// Timeout for verdicts to reach the settle loop. Verdicts arrive immediately unless the host stalls.
const LAST_VERDICTS: Duration = Duration::from_secs(1);

/// Timeout for writing the last verdicts.
const LAST_WRITES: Duration = Duration::from_secs(2);

impl RunningWorker {
    /// Starts the loops on `engine`, with connections from `factory`. Handlers use the pool `theirs` and run on the caller's runtime.
    pub(crate) fn start(
        engine: &Engine,
        (theirs, factory): (&PgPool, &ConnectionFactory),
        config: &Config,
        parts: WorkerParts,
    ) -> Result<Self, Error> {
        let WorkerParts { registry, states, observer, middleware, declares, limits, days, loop_health, lease_deadline, metrics, resources } =
            parts;
        let ((settle, verdicts), notifier) = (mpsc::channel(MAX_UNSETTLED), Arc::new(Notifier::of(loop_health.clone())));
        let job_types: Vec<(&'static str, Options)> =
            registry.names().map(|(name, registration)| (name, *registration.options())).collect();
        let ((reports, received_reports), (logger, logs)) = (ReportSender::open(), LogSender::open());
        let ((journal, steps), (signals, signal_requests)) = (JournalSender::open(), SignalSender::open());
        let (store, served, pauses) =
            (config.store, registry.clone(), loop_health.pauses.get_or_init(|| Pauses::new(registry.clone())).clone());
        let backend = Arc::new(DatabaseBackend { pool: theirs.clone(), store, logs: logger, journal, signals });
        let (handlers, trace, shutting_down) = (Handle::current(), config.trace, CancellationToken::new());
        let shared = Arc::new(Shared { pool: theirs.clone(), store, states, handlers, backend, reports, middleware, trace, shutting_down });
        let (stop, closing, settling) = (CancellationToken::new(), CancellationToken::new(), settle_link(factory, config));
        let context = SlotContext {
            registry,
            shared,
            settle: settle.clone(),
            notifier: Arc::clone(&notifier),
            pauses: pauses.clone(),
            lease_deadline,
            handlers: Handle::current(),
            cancel_grace: config.cancel_grace,
            observer,
            metrics: metrics.clone(),
            takes_batches: job_types.iter().any(|(_, options)| options.batch.is_some()),
            share: resources.as_ref().map(|resources| resources.share.clone()),
            hand: PayloadMemory::new(config.payload_memory, &notifier),
            slow_downs: Arc::default(),
        };
        let queues = Arc::new(Queues::new(context, config));
        let connection = heartbeat_link(factory, resources.as_ref());
        let heartbeat = start_heartbeat(connection, config, &job_types, &queues, loop_health.clone())?;
        let (link, leases) = (StoreConnection::new(factory, "claim").relaxed(), LeaseRegistry::default());
        let poller = Poller::new((config, limits), &job_types, Arc::clone(&queues), leases.clone(), link, heartbeat.identity());
        let link = StoreConnection::new(factory, "housekeeping");
        let housekeeper = Housekeeper { link, config: config.clone(), queues: Arc::clone(&queues), leases, identity: heartbeat.identity() };
        let ticks = ScheduleLoop::new(StoreConnection::new(factory, "schedules"), config, &notifier, heartbeat.identity(), declares);
        let prune = prune((factory, resources.as_ref(), days), config.clone(), job_types, loop_health);
        let fenced = (heartbeat.identity(), Arc::clone(&queues), Arc::clone(&notifier));
        let (listen_handle, pace) = (resources.and_then(|resources| resources.listen_handle), config.pace);
        let loops =
            ReportingLoops { engine, factory, store, notifier: &notifier, metrics: &metrics, registry: served, pace, listen_handle };
        let mut helpers = loops.start(pauses, (received_reports, logs), (steps, signal_requests));
        helpers.extend([
            engine.supervise(Loop::Schedules, move || run_schedules(ticks.another())),
            engine.supervise(Loop::Prune, prune),
            engine.supervise(Loop::SlowDowns, slow_downs(&queues.context, StoreConnection::new(factory, "limits").impatient())),
            engine.supervise(Loop::Fence, move || fence(fenced.clone())),
            engine.supervise(Loop::Housekeeping, move || run_housekeeper(housekeeper.another())),
        ]);
        Ok(Self {
            claims: engine.supervise(Loop::Poller, claim(poller, stop.clone())),
            settles: engine
                .supervise(Loop::Settle, settle_all((shared_state(verdicts), closing.clone()), settling, config, (&notifier, &metrics))),
            helpers,
            flusher: loops.start_flusher(),
            drain_notice: DrainNotice::new(StoreConnection::new(factory, "farewell"), config.store, heartbeat.identity(), queues.pauses()),
            _abandon: AbandonOnDrop(Arc::clone(&queues)),
            queues,
            stop,
            closing,
            heartbeat,
        })
    }

    /// Calls `hooks` in a separate task once the worker is registered.
    pub(crate) fn call_ready_hooks(&self, hooks: Vec<Box<dyn FnOnce() + Send>>) {
        if !hooks.is_empty() {
            tokio::spawn(call_ready_hooks(self.identity(), hooks));
        }
    }

    /// Returns a receiver of the worker's identity. The identity is `None` while the worker has no lease.
    pub(crate) fn identity(&self) -> watch::Receiver<Identity> {
        self.heartbeat.identity()
    }

    /// Returns whether the worker has neither queued nor running jobs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.load().busy == 0 && self.queues.all().iter().all(|slots| slots.is_idle())
    }

    /// Stops claiming jobs. Running handlers are not affected.
    pub(crate) fn stop_claiming(&self) {
        self.stop.cancel();
        self.queues.context.notifier.request_probe();
    }

    /// Stops the worker. Claiming stops, queued jobs are released, and running handlers have up to `grace` to finish. Then the remaining
    /// handlers are dropped and their jobs released, and the last verdicts are written. The heartbeat ends last.
    pub(crate) async fn stop(self, grace: Duration) {
        let Self { queues, stop, closing, claims, settles, helpers, flusher, drain_notice, heartbeat, _abandon } = self;
        let until = Instant::now() + grace;
        queues.context.shared.shutting_down.cancel();
        stop.cancel();
        queues.context.notifier.request_probe();
        let _ = claims.await;
        let subscriptions = queues.all();
        for slots in &subscriptions {
            give_back(&queues.context.settle, slots.take_queued()).await;
        }
        let drain_notice = tokio::spawn(drain_notice.run());
        wait_until_idle(&subscriptions, until).await;
        for slots in &subscriptions {
            slots.request_shutdown();
        }
        wait_until_idle(&subscriptions, Instant::now() + STOP_TIMEOUT).await;
        for slots in &subscriptions {
            slots.drop_running();
        }
        wait_until_idle(&subscriptions, Instant::now() + STOP_TIMEOUT).await;
        for slots in &subscriptions {
            give_back(&queues.context.settle, slots.take_running()).await;
        }
        wait_until_idle(&subscriptions, Instant::now() + LAST_VERDICTS).await;
        for helper in helpers.into_iter().chain([drain_notice]) {
            helper.abort();
        }
        closing.cancel();
        // An unresponsive database must not delay the exit. Jobs with unwritten verdicts are recovered after the lease has expired.
        let abort = settles.abort_handle();
        if tokio::time::timeout(LAST_WRITES, settles).await.is_err() {
            abort.abort();
        }
        flusher.end().await;
        heartbeat.stop().await;
    }
}

/// Creates the poll loop. The poller's state survives a panic.
fn claim(poller: Poller, stop: CancellationToken) -> impl FnMut() -> BoxFuture<'static, ()> + Send {
    let poller = shared_state(poller);
    move || {
        let (poller, stop) = (Arc::clone(&poller), stop.clone());
        async move { poller.lock().await.run(stop).await }.boxed()
    }
}

/// Returns the names of the job types with their newest versions.
fn newest(job_types: &[(&'static str, Options)]) -> Vec<(&'static str, u16)> {
    job_types.iter().map(|(name, options)| (*name, options.version)).collect()
}

/// Creates the loop that stores the slow-downs requested by handlers.
fn slow_downs(context: &Arc<SlotContext>, link: StoreConnection) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let context = Arc::clone(context);
    move || write_slow_downs(Arc::clone(&context.slow_downs), link.another(), context.shared.store, Arc::clone(&context.notifier)).boxed()
}

/// Starts the worker's heartbeat. The heartbeat registers `job_types` in the store and reports the load of `queues`.
fn start_heartbeat(
    connection: (StoreConnection, Option<&Handle>),
    config: &Config,
    job_types: &[(&'static str, Options)],
    queues: &Arc<Queues>,
    loop_health: LoopHealth,
) -> Result<Heartbeat, Error> {
    let (lease_deadline, queues) = (queues.context.lease_deadline.clone(), Arc::clone(queues));
    Heartbeat::start(connection, config, stored_types(&newest(job_types)), (lease_deadline, loop_health), Box::new(move || queues.load()))
}

/// Returns the connection for heartbeats. Also returns the runtime of the shared heartbeat thread, or `None` if the worker has a
/// dedicated thread.
fn heartbeat_link<'b>(factory: &ConnectionFactory, resources: Option<&'b SharedResources>) -> (StoreConnection, Option<&'b Handle>) {
    match resources {
        // Other stores wait for the shared connection, so a short lock timeout limits how long a heartbeat uses it.
        Some(resources) => (StoreConnection::new(&resources.heartbeat, "heartbeat").prompt(), Some(resources.heartbeats.handle())),
        // Only heartbeats use this connection.
        None => (StoreConnection::new(factory.pool(), "heartbeat"), None),
    }
}

/// Creates the loop that prunes the store over separate connections.
fn prune(
    (factory, resources, days): (&ConnectionFactory, Option<&SharedResources>, Option<StoreConnection>),
    config: Config,
    job_types: Vec<(&'static str, Options)>,
    loop_health: LoopHealth,
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let (factory, begin) = resources.map_or((factory, Duration::ZERO), |resources| (&resources.prune, resources.prune_in));
    let link = StoreConnection::new(factory, "prune");
    move || {
        let links = (link.another(), days.as_ref().map(StoreConnection::another));
        run_pruning(links, config.clone(), job_types.clone(), (loop_health.clone(), begin)).boxed()
    }
}

fn settle_link(factory: &ConnectionFactory, config: &Config) -> StoreConnection {
    let link = StoreConnection::new(factory, "settle").prompt();
    if matches!(config.durability, Durability::Relaxed) { link.relaxed() } else { link }
}
