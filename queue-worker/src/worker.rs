//! The worker: what is given to it, and the loops that make it up.
//!
//! ```text
//! claim loop ---jobs---> slots ---verdicts---> settle loop
//!     ^  bell: notifications, free slots, due times
//! heartbeat thread: identity        housekeeping: recover, called-off jobs; prune
//! ```
//!
//! The claim loop is in `feed`; this file starts everything, and ends it in the right order.

mod announced;
#[cfg(feature = "health")]
mod answer;
mod builder;
mod contexts;
mod farewell;
mod given;
mod last;
#[cfg(feature = "otel")]
mod meter;
mod schedules;
mod tellers;
#[cfg(feature = "cli")]
pub(crate) mod tried;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    BatchHandler, Durability, Handler, Limit, Middleware, Options, Registry, RegistryError, migrate,
    runner::{ReportSender, Shared, States},
    schedule::{Declared, Schedule},
};
use sqlx::PgPool;
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use self::{
    announced::{Abandon, fence, tell_ready},
    contexts::beside,
    farewell::Farewell,
    given::{Given, complain_of_keyring},
    last::{LAST_WORDS, give_back, wait_for},
    schedules::declarations,
    tellers::{Speaker, Tellers},
};
use crate::{
    claim::Feed,
    error::Error,
    keep::{House, Ticks, fire_all, keep_house, keep_pruned},
    lanes::{KnownLeases, stored_types},
    live::{Bell, Config, Engine, Life, Link, Loop, OwnLimits, Pauses, Pulse, Vitals},
    run::{AttemptOutcome, Queues, SlotContext, Teller, Transact},
    settle::{AskSender, DatabaseBackend, JournalSender, LogSender, Settlement, settle_all},
    tally::Tallies,
};

/// Runs jobs. Build it, then [`Worker::run`] it.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
/// use queue_worker::{Worker, shutdown_signal};
///
/// Worker::new(pool).queue("mail", 20).run(shutdown_signal()).await
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    pool: PgPool,
    direct: Option<PgPool>,
    config: Config,
    states: States,
    registry: Option<Registry>,
    teller: Teller,
    middleware: Vec<Arc<dyn Middleware>>,
    ready: Vec<Box<dyn FnOnce() + Send>>,
    broken: Option<RegistryError>,
    /// What the types registered one by one declare, and what was declared by itself.
    declared: Vec<Declared>,
    schedules: Vec<(String, Schedule)>,
    /// Of queues.
    limits: Vec<(String, Limit)>,
    #[cfg(feature = "health")]
    health: Option<std::net::SocketAddr>,
    #[cfg(feature = "otel")]
    meter: Option<opentelemetry::metrics::Meter>,
}

impl Worker {
    /// A worker over this pool, which its handlers share. It makes six connections of its own to the same database, a seventh while it
    /// claims as fast as it can, one more once there are ordering keys, one once there are schedules, one once jobs expire, one once
    /// attempts have ended, another once a handler reports progress, one once logs are kept, one once a step is journaled, one once a signal is waited for, one for a moment each minute while it prunes, and more for transactional jobs; see [`Worker::transactional`].
    pub fn new(pool: PgPool) -> Self {
        let (config, states, teller) = (Config::default(), States::default(), Teller::default());
        let (declared, schedules, limits, middleware, ready) = Default::default();
        Self {
            pool,
            direct: None,
            config,
            states,
            registry: None,
            teller,
            middleware,
            ready,
            broken: None,
            declared,
            schedules,
            limits,
            #[cfg(feature = "health")]
            health: None,
            #[cfg(feature = "otel")]
            meter: None,
        }
    }

    /// The pool that it was given: for whatever its handlers' state is made of.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Its own connections lead where this pool does, past a pooler that keeps no sessions; see [`Database::direct`](crate::Database::direct).
    pub fn direct(mut self, pool: &PgPool) -> Self {
        self.direct = Some(pool.clone());
        self
    }

    /// What handlers get with `cx.state::<T>()`; one value a type.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.put(value);
        self
    }

    /// Runs `T`, and of the types linked into this binary only those registered so. For platforms without link-time registration, and for
    /// workers that run some types only.
    pub fn register<T: Handler>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register::<T>() {
            self.broken.get_or_insert(error);
        }
        self.declared.push(Declared::of::<T>());
        self
    }

    /// As [`Worker::register`], for a type whose handler takes batches: `#[job(batch = 500)]`.
    pub fn register_batch<T: BatchHandler>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register_batch::<T>() {
            self.broken.get_or_insert(error);
        }
        self.declared.push(Declared::of::<T>());
        self
    }

    /// Runs this around each attempt, within those that were given before: see [`Middleware`].
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Tells `hook` what came of each attempt that ends in this worker, for figures and alarms. Hooks of several calls are all called.
    ///
    /// It is called by the attempt itself, just before its verdict goes on its way, so let it be quick, and hand work to a task. Should the
    /// worker lose its lease at that very moment, others have the job, and the verdict is refused. Attempts that ended with their process are
    /// counted by whoever recovers them, and told only to the log; so are jobs that expired, which had none. A panic of the hook is logged, and changes nothing else.
    ///
    /// Each failed attempt is logged at `info` and each dead letter at `warn` in any case.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_core::Verdict;
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let worker = Worker::new(pool).on_outcome(|attempt| {
    ///     if attempt.verdict == Verdict::Dead {
    ///         println!("call somebody: {} of type {}", attempt.job, attempt.job_type);
    ///     }
    /// });
    /// worker.run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn on_outcome(mut self, hook: impl Fn(&AttemptOutcome<'_>) + Send + Sync + 'static) -> Self {
        self.teller.add(hook);
        self
    }

    /// Calls `hook` once, when this worker is ready: it is announced to the store, and claims jobs. Hooks of several calls are all called.
    ///
    /// For a health check, or a supervisor; that of the command line tells systemd by itself (`Type=notify`). It stands in the way of nothing
    /// but other hooks. While the database is away a worker is not ready.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let (ready, is_ready) = tokio::sync::oneshot::channel();
    /// let worker = Worker::new(pool).on_ready(move || ready.send(()).unwrap_or_default());
    /// tokio::spawn(async move { is_ready.await.map(|()| println!("at work")) });
    /// worker.run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn on_ready(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.ready.push(Box::new(hook));
        self
    }

    /// Runs jobs until `shutdown` completes, then lets running handlers finish within the grace period, releases the rest uncharged, and
    /// returns. While the database is away it waits for its return.
    ///
    /// # Errors
    /// Before the first job: a setting out of range, job types that cannot be run, a store that is not migrated or out of reach, a standby if it is not to
    /// wait there ([`Worker::on_standby`]).
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (vitals, life, tallies) = (Vitals::default(), Life::new(), Tallies::default());
        #[cfg(feature = "health")]
        let _answering = self.answer(&vitals, &life, &tallies).await?;
        #[cfg(feature = "otel")]
        let feeding = self.tell_meter(&vitals, &tallies)?;
        let Self { pool, direct, config, states, registry, teller, middleware, ready, broken, declared, schedules, limits, .. } = self;
        config.check()?;
        let direct = direct.unwrap_or_else(|| pool.clone());
        if let Some(error) = broken {
            return Err(error.into());
        }
        let declared = if registry.is_some() { declared } else { Declared::linked().collect() };
        let declares = declarations(declared.into_iter().filter_map(Declared::named).chain(schedules), config.store)?;
        let registry = registry.map_or_else(Registry::linked, Ok)?.served(complain_of_keyring)?;
        registry.check(&states)?;
        let registry = registry.with_ours()?;
        let limits = OwnLimits::new(&registry, &config.queues, &limits)?;
        tokio::pin!(shutdown);
        let mut link = tokio::select! {
            link = config.on_standby.heed(&direct) => link?,
            () = &mut shutdown => return Ok(()),
        };
        link.check_settings().await?;
        migrate::verify(link.get().await?, config.store).await?;
        link.close().await;

        // Dropped half-way, this future takes the engine and the heartbeat with it: the jobs are recovered like those of a silent worker.
        let engine = Engine::start_watched("queue engine", &vitals).map_err(|error| Error::Thread(error.to_string()))?;
        let given = Given { registry, states, teller, middleware, declares, limits, vitals: vitals.clone(), life, tallies };
        let running = RunningWorker::start(&engine, (&pool, &direct), &config, given)?;
        tracing::info!(name = config.name, queues = config.served(), "worker started");
        if !ready.is_empty() {
            tokio::spawn(tell_ready(running.pulse.identity(), ready));
        }
        shutdown.await;
        vitals.stop();
        tracing::info!("shutting down");
        // On the engine, where no handler that blocks its thread can hold it up.
        let _ = engine.handle().spawn(running.stop(config.grace)).await;
        #[cfg(feature = "otel")]
        if let Some(feeding) = feeding {
            feeding.end().await;
        }
        tracing::info!("worker stopped");
        Ok(())
    }
}

/// A worker at work.
struct RunningWorker {
    queues: Arc<Queues>,
    settle: mpsc::Sender<Settlement>,
    bell: Arc<Bell>,
    stop: CancellationToken,
    closing: CancellationToken,
    claims: JoinHandle<()>,
    transact: Transact,
    settles: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
    speaker: Speaker,
    farewell: Farewell,
    pulse: Pulse,
    _abandon: Abandon,
}

/// So many verdicts may wait for the settle loop before slots wait for it.
const UNSETTLED: usize = 4096;

/// Verdicts that were made have this long to come to the settle loop: no time at all, but on a machine that stands still.
const LAST_VERDICTS: Duration = Duration::from_secs(1);

/// The last verdicts have this long to be written.
const LAST_WRITES: Duration = Duration::from_secs(2);

impl RunningWorker {
    fn start(engine: &Engine, (theirs, pool): (&PgPool, &PgPool), config: &Config, given: Given) -> Result<Self, Error> {
        let Given { registry, states, teller, middleware, declares, limits, vitals, life, tallies } = given;
        let ((settle, verdicts), bell) = (mpsc::channel(UNSETTLED), Arc::new(Bell::of(vitals.clone())));
        let known: Vec<(&'static str, Options)> = registry.names().map(|(name, known)| (name, *known.options())).collect();
        let ((reports, said), (logger, logs)) = (ReportSender::open(), LogSender::open());
        let ((journal, steps), (signals, asks)) = (JournalSender::open(), AskSender::open());
        let (pauses, store, served) = (Pauses::new(registry.clone()), config.store, registry.clone());
        let _ = vitals.pauses.set(pauses.clone());
        let backend = Arc::new(DatabaseBackend { pool: theirs.clone(), store, logs: logger, journal, signals });
        let (handlers, trace) = (Handle::current(), config.trace);
        let shared = Arc::new(Shared { pool: theirs.clone(), store, states, handlers, backend, reports, middleware, trace });
        let (stop, closing, settling) = (CancellationToken::new(), CancellationToken::new(), settle_link(pool, config));
        let context = SlotContext {
            registry,
            shared,
            settle: settle.clone(),
            bell: Arc::clone(&bell),
            pauses: pauses.clone(),
            life: life.clone(),
            handlers: Handle::current(),
            cancel_grace: config.cancel_grace,
            teller,
            tallies: tallies.clone(),
            takes_batches: known.iter().any(|(_, options)| options.batch.is_some()),
        };
        let queues = Arc::new(Queues::new(context, config));
        let transact = beside(&queues, config, &stop);
        let newest: Vec<_> = known.iter().map(|(name, options)| (*name, options.version)).collect();
        let (of, link) = (Arc::clone(&queues), Link::new(pool, "heartbeat"));
        let pulse = Pulse::start(link, config, stored_types(&newest), (life, vitals.clone()), Box::new(move || of.load()))?;
        let (link, held) = (Link::new(pool, "claim").relaxed(), KnownLeases::default());
        let feed = Feed::new((config, limits), &known, Arc::clone(&queues), held.clone(), link, Arc::clone(&bell), pulse.identity());
        let house = House {
            link: Link::new(pool, "housekeeping"),
            config: config.clone(),
            queues: Arc::clone(&queues),
            held,
            bell: Arc::clone(&bell),
            identity: pulse.identity(),
            settle: settle.clone(),
            tallies: tallies.clone(),
        };
        let tellers = Tellers { engine, pool, store, bell: &bell, tallies: &tallies, registry: served };
        let mut helpers = tellers.start(pauses, (said, logs), (steps, asks));
        helpers.extend([
            engine.watch(Loop::Schedules, fire_all(Ticks::new(Link::new(pool, "schedules"), config, &bell, pulse.identity(), declares))),
            engine.watch(Loop::Prune, keep_pruned(Link::new(pool, "prune"), config.clone(), known, vitals)),
            engine.watch(Loop::Fence, fence(pulse.identity(), Arc::clone(&queues), Arc::clone(&bell))),
            engine.watch(Loop::Housekeeping, keep_house(house)),
        ]);
        Ok(Self {
            claims: engine.watch(Loop::Claim, feed.run(stop.clone())),
            transact: Transact::start(engine, transact),
            settles: engine
                .watch(Loop::Settle, settle_all((verdicts, closing.clone()), settling, config, Arc::clone(&bell), tallies.clone())),
            helpers,
            speaker: tellers.speak(),
            farewell: Farewell::new(Link::new(pool, "farewell"), config.store, pulse.identity(), queues.pauses()),
            _abandon: Abandon(Arc::clone(&queues)),
            queues,
            settle,
            bell,
            stop,
            closing,
            pulse,
        })
    }

    /// Stops claiming, waits for handlers, releases what is left, settles it all, and takes the heartbeat away last.
    async fn stop(self, grace: Duration) {
        let Self { queues, settle, bell, stop, closing, claims, transact, settles, helpers, speaker, farewell, pulse, _abandon } = self;
        let until = Instant::now() + grace;
        stop.cancel();
        bell.ring();
        let transact = tokio::spawn(transact.stop(until));
        let _ = claims.await;
        let subscriptions = queues.all();
        for slots in &subscriptions {
            give_back(&settle, slots.take_queued()).await;
        }
        let farewell = tokio::spawn(farewell.say());
        wait_for(&subscriptions, until).await;
        for slots in &subscriptions {
            slots.ask();
        }
        wait_for(&subscriptions, Instant::now() + LAST_WORDS).await;
        for slots in &subscriptions {
            slots.drop_running();
        }
        wait_for(&subscriptions, Instant::now() + LAST_WORDS).await;
        for slots in &subscriptions {
            give_back(&settle, slots.take_running()).await;
        }
        wait_for(&subscriptions, Instant::now() + LAST_VERDICTS).await;
        let _ = transact.await;
        for helper in helpers.into_iter().chain([farewell]) {
            helper.abort();
        }
        closing.cancel();
        // A database that does not answer now cannot hold up the exit: what is not written is recovered as a silent worker's.
        let abort = settles.abort_handle();
        if tokio::time::timeout(LAST_WRITES, settles).await.is_err() {
            abort.abort();
        }
        speaker.end().await;
        pulse.stop().await;
    }
}

fn settle_link(pool: &PgPool, config: &Config) -> Link {
    let link = Link::new(pool, "settle").impatient();
    if matches!(config.durability, Durability::Relaxed) { link.relaxed() } else { link }
}
