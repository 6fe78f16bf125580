//! Worker of `queue-core`: everything that happens to a job after it was enqueued.
//!
//! A job is claimed, run and settled; the modules have these names. A worker is one call in your own binary, because a binary runs only the
//! job types linked into it:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
//! use queue_worker::{Worker, shutdown_signal};
//!
//! Worker::new(pool).run(shutdown_signal()).await
//! # }
//! ```
//!
//! Alternatively, [`main!`] generates a complete command line with `run`, `migrate`, `stats`, `requeue` and more.
//!
//! # Features
//!
//! On by default: `cli`, the command line; `embedded`, a private PostgreSQL server that is used when no database is named; `tls`, encrypted
//! connections (rustls, with the system's certificates); `top`, a command that monitors a store on a terminal; and `logs`, which stores what
//! handlers log (implied by `cli`).
//!
//! Off by default: `dashboard`, web pages and a JSON API for operators; `health`, HTTP health checks for supervisors; `metrics`, an endpoint for
//! Prometheus; and `otel`, metrics for an OpenTelemetry meter.
//!
//! A program that only runs a [`Worker`] can set `default-features = false`, and links forty crates fewer.
//!
//! # Guarantees
//!
//! A job whose enqueue was committed is run until it completes, is cancelled, or becomes a dead letter, which operators can see. A verdict is
//! accepted only under the lease of its claim: a worker that was slow, killed, duplicated or disconnected changes nothing. An attempt may be
//! repeated if its process or its connection ends in the middle. `cx.begin()` commits effects in the same database together with the verdict.

// Modules import only modules listed below them (see ARCHITECTURE.md).
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "dashboard")]
pub mod dashboard;
mod stores;
mod worker;
#[cfg(feature = "health")]
mod health;
#[cfg(any(feature = "metrics", feature = "otel"))]
mod figures;
mod claim;
mod keep;
mod run;
mod settle;
mod tally;
mod lanes;
mod live;
mod error;
#[cfg(any(feature = "cli", feature = "dashboard"))]
mod escape;
#[cfg(any(feature = "cli", feature = "dashboard"))]
mod program;
#[cfg(feature = "logs")]
mod logs;
#[cfg(any(feature = "dashboard", feature = "health"))]
mod serve;

pub use error::Error;
pub use live::{Config, Database, DatabaseOptions, OnStandby, log_panics, shutdown_signal};
#[cfg(feature = "logs")]
pub use logs::{AtLeast, Logs, logs, logs_at};
#[cfg(feature = "embedded")]
pub use queue_embedded as embedded;
pub use run::AttemptOutcome;
/// The database driver, in the version whose pools a [`Worker`] takes.
pub use sqlx;
pub use stores::StoresWorker;
pub use worker::Worker;

/// Without the feature `cli`, the command line does not exist.
#[cfg(not(feature = "cli"))]
#[macro_export]
macro_rules! main {
    ($($any:tt)*) => {
        ::core::compile_error!("`queue_worker::main!` is a whole command line; enable the feature `cli` of `queue-worker`, or run a `Worker` in your own `main`");
        // Suppresses a second error about the missing `main`.
        fn main() {}
    };
}
