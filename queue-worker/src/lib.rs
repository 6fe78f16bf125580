//! Worker for `queue-core`: claims, runs and settles enqueued jobs.
//!
//! A binary runs only the job types linked into it. Therefore, you start a worker with a single call in your own binary:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
//! use queue_worker::{Worker, shutdown_signal};
//!
//! Worker::new(pool).run(shutdown_signal()).await
//! # }
//! ```
//!
//! Alternatively, [`main!`] generates a complete command line with `run`, `migrate`, `stats`, `requeue` and more commands.
//!
//! # Features
//!
//! On by default:
//!
//! - `cli`: the command line.
//! - `embedded`: a private PostgreSQL server that is used if no database URL is configured.
//! - `tls`: encrypted connections with rustls and the system's certificates.
//! - `top`: a command that monitors a store in a terminal.
//! - `logs`: stores what handlers log; implied by `cli`.
//!
//! Off by default:
//!
//! - `dashboard`: web pages and a JSON API for operators.
//! - `health`: HTTP health checks for supervisors.
//! - `metrics`: an endpoint for Prometheus.
//! - `otel`: metrics for an OpenTelemetry meter.
//!
//! A program that only runs a [`Worker`] can set `default-features = false` to link about forty fewer crates.
//!
//! # Guarantees
//!
//! Once an enqueue is committed, the job eventually completes, is cancelled, expires, or becomes a dead letter that operators can inspect.
//! A verdict is accepted only under the lease of its claim. A worker that has lost its lease, for example because it was slow or
//! disconnected, therefore changes nothing. An attempt may be repeated if its process or connection ends before the verdict is committed.
//! `cx.begin()` commits effects in the same database together with the verdict.

// A module imports only from the modules listed below it (see `ARCHITECTURE.md`).
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
pub use logs::{Logs, MinimumLevel, logs, logs_at};
#[cfg(feature = "embedded")]
pub use queue_embedded as embedded;
pub use run::AttemptOutcome;
/// Database driver, in the version whose pools [`Worker::new`] accepts.
pub use sqlx;
pub use stores::StoresWorker;
pub use worker::Worker;

/// Reports at compile time that the command line requires the feature `cli`.
#[cfg(not(feature = "cli"))]
#[macro_export]
macro_rules! main {
    ($($any:tt)*) => {
        ::core::compile_error!("`queue_worker::main!` is a whole command line; enable the feature `cli` of `queue-worker`, or run a `Worker` in your own `main`");
        // Prevents a second error about a missing `main`.
        fn main() {}
    };
}
