//! The settings of a worker as methods: the list in `live`, and those that are written otherwise there.

use std::time::Duration;

use queue_core::{Durability, Limit, Store, TraceRelation, schedule::Schedule};

use super::Worker;
use crate::live::{Config, OnStandby, each_setting};

impl Worker {
    /// With all settings at once; calls after this one change single ones.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Serves this queue with so many handlers at a time. Once a queue is named, others are not served.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: usize) -> Self {
        self.config.queues.push((queue.into(), concurrency));
        self
    }

    /// Declares a schedule: while a worker that does so lives, it is in force, and its ticks are seen to by all. Of several releases that declare
    /// one of this name, the newest wins; what none declares any more is withdrawn once a lease is over.
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

    /// How many jobs of this queue run at once, or begin in a time, over all workers, be they told so or not: the worker that started last is
    /// believed, and an operator before it. One that names the queue ([`Worker::queue`]) and says nothing of a limit takes it away. Transactional
    /// jobs are not counted.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
    /// use queue_core::Limit;
    /// use queue_worker::{Worker, shutdown_signal};
    ///
    /// Worker::new(pool).limit("render", Limit::queue().concurrency(10)).run(shutdown_signal()).await
    /// # }
    /// ```
    pub fn limit(mut self, queue: impl Into<String>, limit: Limit) -> Self {
        self.limits.push((queue.into(), limit));
        self
    }

    /// Works on this store instead of the default one.
    pub fn store(mut self, store: Store) -> Self {
        self.config.store = store;
        self
    }

    /// Whether a verdict waits for the disk. Default [`Durability::Full`]; see [`Durability::Relaxed`] for what the other risks.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// How the span of an attempt stands to the span in which its job was enqueued: default [`TraceRelation::Link`]. It counts with the feature `otel`
    /// of `queue-core`; `docs/TRACES.md` has the rest.
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
    ($($(#[$said:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
        impl Worker {
            $($(#[$said])* pub fn $name(mut self, $name: $taken) -> Self {
                self.config.$name = $name.into();
                self
            })*
        }
    };
}
each_setting!(methods);
