//! Worker with its builder methods and loops.
//!
//! ```text
//! poller ---hints---> claimers ---jobs---> slots ---verdicts---> settle loop
//!     ^  notifier: notifications, due times
//! heartbeat thread: identity        housekeeping: recovery, cancellation; prune
//! ```
//!
//! The poller and the claimers are in the module `claim`. The module `running` starts all loops and stops them in the right order.

mod fence;
#[cfg(feature = "health")]
mod health_checks;
mod builder;
mod check;
mod drain_notice;
mod parts;
mod stop;
#[cfg(feature = "otel")]
mod meter;
#[cfg(feature = "cli")]
mod template;
mod running;
mod schedules;
mod reporting;
mod unused;
#[cfg(feature = "cli")]
pub(crate) mod trial;

use std::sync::Arc;

use queue_core::{
    middleware::Middleware,
    migrate,
    options::Limit,
    registry::{BatchRunner, JobRunner, Registry, RegistryError},
    runner::{States, verify_worker},
    schedule::{DeclaredSchedule, Schedule},
};
use sqlx::PgPool;

#[cfg(feature = "cli")]
use self::parts::warn_missing_keyring;
use self::unused::warn_of_unused;
pub(crate) use self::{
    parts::{CheckedWorker, SharedResources},
    running::RunningWorker,
};
use crate::{
    error::Error,
    live::{Cluster, Config, ConnectionFactory, Engine, LeaseDeadline, LoopHealth},
    run::{AttemptOutcome, OutcomeObserver},
    tally::MetricsBuffer,
};

/// Worker that runs a store's jobs. Configure the worker with the builder methods, then call [`Worker::run`].
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
    observer: OutcomeObserver,
    middleware: Vec<Arc<dyn Middleware>>,
    ready: Vec<Box<dyn FnOnce() + Send>>,
    broken: Option<RegistryError>,
    /// Schedules declared by the registered job types.
    declared: Vec<DeclaredSchedule>,
    schedules: Vec<(String, Schedule)>,
    /// Pairs of queue and declared limit.
    limits: Vec<(String, Limit)>,
    #[cfg(feature = "health")]
    health: Option<std::net::SocketAddr>,
    #[cfg(feature = "otel")]
    meter: Option<opentelemetry::metrics::Meter>,
}

/// Number of connections that are not shared: one for heartbeats and one for notifications. All other loops share the remaining connections
/// of the worker.
const ALONE: usize = 2;

impl Worker {
    /// Creates a worker that shares `pool` with the handlers.
    ///
    /// The worker opens additional connections to the same database: four while the worker is idle, more for concurrent statements, and
    /// at most [`Worker::connections`]. Each running transactional job uses a connection from the pool.
    pub fn new(pool: PgPool) -> Self {
        let (config, states, observer) = (Config::default(), States::default(), OutcomeObserver::default());
        let (declared, schedules, limits, middleware, ready) = Default::default();
        Self {
            pool,
            direct: None,
            config,
            states,
            registry: None,
            observer,
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

    /// Returns the pool passed to [`Worker::new`], for example to build state for handlers.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Uses the address of `pool` for the worker's dedicated connections, so that they bypass a transaction pooler, which does not keep
    /// sessions. See [`Database::direct`](crate::Database::direct).
    pub fn direct(mut self, pool: &PgPool) -> Self {
        self.direct = Some(pool.clone());
        self
    }

    /// Adds a value that handlers access with `cx.state::<T>()`. A worker has one value per type.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.put(value);
        self
    }

    /// Registers the handler `H` with its job type. `H` is a type with `impl Handler`, or a function with
    /// [`#[handler]`](queue_core::handler).
    ///
    /// Once a handler is registered, the worker runs only registered types instead of all types linked into the binary. Registration is
    /// intended for platforms without link-time registration, and for workers that run only some types.
    pub fn register<H: JobRunner>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register::<H>() {
            self.broken.get_or_insert(error);
        }
        self.declared.push(DeclaredSchedule::of::<H::Job>());
        self
    }

    /// Registers the batch handler `H` with its job type, for example a type declared with `#[job(batch = 500)]`. Otherwise equivalent to
    /// [`Worker::register`].
    pub fn register_batch<H: BatchRunner>(mut self) -> Self {
        if let Err(error) = self.registry.get_or_insert_default().register_batch::<H>() {
            self.broken.get_or_insert(error);
        }
        self.declared.push(DeclaredSchedule::of::<H::Job>());
        self
    }

    /// Runs `middleware` around each attempt, inside the middleware that was added earlier. See [`Middleware`].
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Calls `hook` with the outcome of each attempt that ends in this worker, for metrics and alerts.
    ///
    /// If several hooks are set, all hooks are called.
    ///
    /// The hook is called just before the attempt sends its verdict. The hook should return quickly and leave longer work to a task. If the
    /// worker loses its lease at that moment, the verdict is refused and another worker runs the job. If the hook panics, the panic is
    /// logged and has no other effect.
    ///
    /// Two kinds of outcomes are logged and counted, but not passed to the hook:
    ///
    /// - Attempts that ended because their process crashed. Another worker recovers the jobs of these attempts.
    /// - Expired jobs, which had no attempt.
    ///
    /// Each failed attempt is also logged at `info`, and each dead letter at `warn`.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_core::options::Verdict;
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let worker = Worker::new(pool).on_outcome(|attempt| {
    ///     if attempt.verdict == Verdict::Dead {
    ///         println!("dead letter: {} of type {}", attempt.job, attempt.job_type);
    ///     }
    /// });
    /// worker.run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn on_outcome(mut self, hook: impl Fn(&AttemptOutcome<'_>) + Send + Sync + 'static) -> Self {
        self.observer.add(hook);
        self
    }

    /// Calls `hook` as soon as this worker is registered in the store and claims jobs.
    ///
    /// If several hooks are set, all hooks are called. Each hook is called only once.
    ///
    /// The hook can notify a health check or a supervisor, for example. A worker started from the command line notifies systemd
    /// automatically (`Type=notify`). A slow hook delays only other hooks. A worker is not ready while the database is unreachable.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let (ready, is_ready) = tokio::sync::oneshot::channel();
    /// let worker = Worker::new(pool).on_ready(move || ready.send(()).unwrap_or_default());
    /// tokio::spawn(async move { is_ready.await.map(|()| println!("ready")) });
    /// worker.run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn on_ready(mut self, hook: impl FnOnce() + Send + 'static) -> Self {
        self.ready.push(Box::new(hook));
        self
    }

    /// Runs jobs until `shutdown` completes, and then stops the worker.
    ///
    /// At shutdown, running handlers can finish within the grace period. All other jobs are released without counting an attempt. While the
    /// database is unreachable, the worker waits and reconnects.
    ///
    /// If the program has not set a `tracing` subscriber, the worker logs to stderr like the command line. The filter is `RUST_LOG`, or
    /// `info` by default. Logging to stderr requires the feature `logs`, which is on by default.
    ///
    /// # Errors
    /// Returns an error before the first job if a setting is out of range, a job type is invalid, or the store is not migrated or cannot be
    /// reached. Also returns an error if the database is a standby and the worker is configured to exit ([`Worker::on_standby`]).
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        #[cfg(feature = "logs")]
        crate::logs::log_to_stderr_by_default();
        let (loop_health, lease_deadline, metrics) = (LoopHealth::default(), LeaseDeadline::new(), MetricsBuffer::default());
        #[cfg(feature = "health")]
        let _health_checks = self.start_health_checks(&loop_health, &lease_deadline, &metrics).await?;
        #[cfg(feature = "otel")]
        let export = self.start_export(&loop_health, &metrics)?;
        let CheckedWorker { mut pool, mut direct, mut config, ready, mut parts } =
            self.check((loop_health.clone(), lease_deadline, metrics), None)?;
        tokio::pin!(shutdown);
        let mut link = tokio::select! {
            link = config.on_standby.wait_for_writes(&direct) => link?,
            () = &mut shutdown => return Ok(()),
        };
        link.check_settings().await?;
        verify_worker(link.get().await?, config.store).await?;
        migrate::verify(link.get().await?, config.store).await?;
        let cluster = Cluster::find(&mut link, (&mut pool, &mut direct), &mut config.store).await?;
        link.close().await;
        warn_of_unused(&config, &parts.registry, &[(&pool, config.store)]).await;

        // Dropping this future drops the engine and the heartbeat. The jobs are then recovered after the lease has expired.
        let engine = Engine::start_watched("queue engine", &loop_health).map_err(|error| Error::Thread(error.to_string()))?;
        parts.days = cluster.map(|cluster| cluster.follow(&engine));
        let factory = ConnectionFactory::of_one_worker(&direct, config.connections - ALONE);
        let running = RunningWorker::start(&engine, (&pool, &factory), &config, parts)?;
        tracing::info!(name = config.name, queues = config.served(), "worker started");
        running.call_ready_hooks(ready);
        shutdown.await;
        loop_health.stop();
        tracing::info!("shutting down");
        // The shutdown runs on the engine's thread, so handlers that block their threads cannot delay it.
        let _ = engine.handle().spawn(running.stop(config.grace)).await;
        #[cfg(feature = "otel")]
        if let Some(export) = export {
            export.end().await;
        }
        tracing::info!("worker stopped");
        Ok(())
    }
}
