//! Runs the jobs of `queue-core`: everything that happens to a job after it was enqueued.
//!
//! A job's way is claim, dispatch, settle; the files have these names. A worker is one call in your own binary, because a binary runs only
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
//! # What it promises
//!
//! A job whose enqueue was committed is run until it completes, is cancelled, or becomes a dead letter that somebody can see. A verdict counts
//! only under the lease it was reached with: a worker that was slow, killed, doubled or cut off changes nothing. An attempt may be repeated
//! when its process or its connection ends in the middle; effects in the same database are tied to the verdict by `cx.begin()`.

// In the order of a job's way; each file only imports what stands below it (see ARCHITECTURE.md).
pub mod cli;
mod bench;
mod worker;
mod feed;
mod upkeep;
mod slots;
mod transact;
mod commit;
mod dispatch;
mod claim;
mod settle;
mod lease;
mod promote;
mod unblock;
mod prune;
pub mod observe;
mod wake;
mod herald;
mod report;
mod lanes;
mod bell;
mod engine;
mod connect;
mod database;
mod config;
mod error;
mod signal;

pub use config::Config;
pub use database::Database;
pub use error::Error;
pub use signal::shutdown_signal;
pub use worker::Worker;
#[cfg(feature = "embedded")]
pub use queue_embedded as embedded;
