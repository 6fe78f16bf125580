//! Builder methods for a worker's settings. Most methods are generated from the list in `live`. Methods with a different signature are
//! defined here.

use std::time::Duration;

use queue_core::{
    Store,
    options::{Durability, Limit, TraceRelation},
    schedule::Schedule,
};

use super::Worker;
use crate::live::{Config, OnStandby, each_setting};

impl Worker {
    /// Replaces all settings. Later calls to other builder methods override individual settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Serves a queue with at most `concurrency` concurrent handlers. Once a queue is named, the worker serves only named queues.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: usize) -> Self {
        self.config.queues.push((queue.into(), concurrency));
        self
    }

    /// Declares a schedule.
    ///
    /// The schedule is in force while any worker that declares it is alive, and any worker can fire its ticks. If several releases
    /// declare a schedule with the same name, the newest release wins. A schedule is withdrawn one lease TTL after the last worker has
    /// stopped declaring it.
    ///
    /// ```no_run
    /// # use queue_core::{Context, Handler, JobResult, job};
    /// # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Report { region: String }
    /// # impl Handler for Report { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_core::schedule::Schedule;
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// let nightly = Schedule::cron("30 4 * * *").tz("Europe/Berlin").job(&Report { region: "eu".into() });
    /// Worker::new(pool).schedule("report_eu", nightly).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn schedule(mut self, name: impl Into<String>, schedule: Schedule) -> Self {
        self.schedules.push((name.into(), schedule));
        self
    }

    /// Limits the concurrency or the start rate of a queue across all workers.
    ///
    /// The limit also applies to workers that do not declare the limit. If workers declare different limits, the worker that started last
    /// wins. A limit set by an operator takes precedence. A worker that names the queue ([`Worker::queue`]) without declaring a limit
    /// removes the limit.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_core::options::Limit;
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// Worker::new(pool).limit("render", Limit::queue().concurrency(10)).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn limit(mut self, queue: impl Into<String>, limit: Limit) -> Self {
        self.limits.push((queue.into(), limit));
        self
    }

    /// Sets the store that the worker serves, instead of the default store.
    pub fn store(mut self, store: Store) -> Self {
        self.config.store = store;
        self
    }

    /// Sets whether settling a job waits for the WAL flush. Default: [`Durability::Full`]. See [`Durability::Relaxed`] for the risks.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// Sets how the span of an attempt relates to the span in which the job was enqueued. Default: [`TraceRelation::Link`]. Has an effect
    /// only with the feature `otel` of `queue-core`. See `docs/TRACES.md`.
    pub fn trace(mut self, relation: TraceRelation) -> Self {
        self.config.trace = relation;
        self
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("config", &self.config).finish_non_exhaustive()
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $argument:ty, $written:ty = $default:expr;)*) => {
        impl Worker {
            $($(#[$doc])* pub fn $name(mut self, $name: $argument) -> Self {
                self.config.$name = $name.into();
                self
            })*
        }
    };
}
each_setting!(methods);
