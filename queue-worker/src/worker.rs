//! The worker: what is given to it, and the loops that make it up.
//!
//! ```text
//! scout ---hints---> claimers ---jobs---> slots ---verdicts---> settle loop
//!     ^  bell: notifications, due times
//! heartbeat thread: identity        housekeeping: recover, called-off jobs; prune
//! ```
//!
//! The scout and the claimers are in `claim`; `running` starts everything, and ends it in the right order.

mod announced;
#[cfg(feature = "health")]
mod answer;
mod builder;
mod checked;
mod farewell;
mod given;
mod last;
#[cfg(feature = "otel")]
mod meter;
#[cfg(feature = "cli")]
mod prepared;
mod running;
mod schedules;
mod tellers;
mod unused;
#[cfg(feature = "cli")]
pub(crate) mod tried;

use std::sync::Arc;

use queue_core::{
    BatchHandler, Handler, Limit, Middleware, Registry, RegistryError, migrate,
    runner::{States, verify_worker},
    schedule::{Declared, Schedule},
};
use sqlx::PgPool;

#[cfg(feature = "cli")]
use self::given::complain_of_keyring;
use self::unused::warn_of_unused;
pub(crate) use self::{
    given::{Beside, Checked},
    running::RunningWorker,
};
use crate::{
    error::Error,
    live::{Cluster, Config, Engine, Life, Vitals, Wires},
    run::{AttemptOutcome, OutcomeObserver},
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
    teller: OutcomeObserver,
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

/// Of its own connections its heartbeat and whoever listens have one each, and all else shares the others.
const ALONE: usize = 2;

impl Worker {
    /// A worker over this pool, which its handlers share. It makes connections of its own to the same database: four while there is little to do,
    /// more while more is to be said at once, and no more than [`Worker::connections`]. Transactional jobs take connections of the pool, one each while they
    /// run.
    pub fn new(pool: PgPool) -> Self {
        let (config, states, teller) = (Config::default(), States::default(), OutcomeObserver::default());
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
    /// In a program that has set no `tracing` subscriber it logs to stderr, as the command line does; by `RUST_LOG`, else at `info`. That takes the
    /// feature `logs`, which is on by default.
    ///
    /// # Errors
    /// Before the first job: a setting out of range, job types that cannot be run, a store that is not migrated or out of reach, a standby if it is not to
    /// wait there ([`Worker::on_standby`]).
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        #[cfg(feature = "logs")]
        crate::logs::log_to_stderr_by_default();
        let (vitals, life, tallies) = (Vitals::default(), Life::new(), Tallies::default());
        #[cfg(feature = "health")]
        let _answering = self.answer(&vitals, &life, &tallies).await?;
        #[cfg(feature = "otel")]
        let feeding = self.tell_meter(&vitals, &tallies)?;
        let Checked { mut pool, mut direct, mut config, ready, mut given } = self.checked((vitals.clone(), life, tallies), None)?;
        tokio::pin!(shutdown);
        let mut link = tokio::select! {
            link = config.on_standby.heed(&direct) => link?,
            () = &mut shutdown => return Ok(()),
        };
        link.check_settings().await?;
        verify_worker(link.get().await?, config.store).await?;
        migrate::verify(link.get().await?, config.store).await?;
        let cluster = Cluster::find(&mut link, (&mut pool, &mut direct), &mut config.store).await?;
        link.close().await;
        warn_of_unused(&config, &given.registry, &[(&pool, config.store)]).await;

        // Dropped half-way, this future takes the engine and the heartbeat with it: the jobs are recovered like those of a silent worker.
        let engine = Engine::start_watched("queue engine", &vitals).map_err(|error| Error::Thread(error.to_string()))?;
        given.days = cluster.map(|cluster| cluster.follow(&engine));
        let wires = Wires::of_one_worker(&direct, config.connections - ALONE);
        let running = RunningWorker::start(&engine, (&pool, &wires), &config, given)?;
        tracing::info!(name = config.name, queues = config.served(), "worker started");
        running.tell_ready(ready);
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
