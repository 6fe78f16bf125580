//! Runs the jobs of `queue-core`: everything that happens to a job after it was enqueued.
//!
//! A job's way is claim, run, settle; the rooms have these names. A worker is one call in your own binary, because a binary runs only
//! the job types linked into it:
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool) -> Result<(), queue_worker::Error> {
//! use queue_worker::{Worker, shutdown_signal};
//!
//! Worker::new(pool).run(shutdown_signal()).await
//! # }
//! ```
//!
//! Or it is a whole command line, with `run`, `migrate`, `stats`, `requeue` and more: see [`main!`].
//!
//! # Features
//!
//! `cli` is the command line, `embedded` the private PostgreSQL for when no database is named, `tls` what a server that wants encrypted
//! connections needs (rustls, with the system's certificates), `top` a command that follows a store on a terminal; all are on by default. `logs`,
//! which comes with `cli`, keeps what handlers log. Not on by default are `dashboard`, pages and a JSON API for operators, `health`, which tells
//! supervisors whether a worker lives and works, `metrics`, the same in figures for Prometheus, and `otel`, figures for a meter of OpenTelemetry.
//! A program that only runs a [`Worker`] says
//! `default-features = false`, and links forty crates fewer.
//!
//! # What it promises
//!
//! A job whose enqueue was committed is run until it completes, is cancelled, or becomes a dead letter that somebody can see. A verdict counts
//! only under the lease it was reached with: a worker that was slow, killed, doubled or cut off changes nothing. An attempt may be repeated
//! when its process or its connection ends in the middle; effects in the same database are tied to the verdict by `cx.begin()`.

// Imports go down only (see ARCHITECTURE.md).
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
mod inert;
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
/// The driver, of the version whose pools a [`Worker`] takes.
pub use sqlx;
pub use stores::StoresWorker;
pub use worker::Worker;

/// Without the feature `cli` there is no command line to hand over to.
#[cfg(not(feature = "cli"))]
#[macro_export]
macro_rules! main {
    ($($any:tt)*) => {
        ::core::compile_error!("`queue_worker::main!` is a whole command line; turn on the feature `cli` of `queue-worker`, or run a `Worker` in a `main` of your own");
        // So that this is the only message.
        fn main() {}
    };
}
