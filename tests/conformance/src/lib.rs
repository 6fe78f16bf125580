//! Runs every public operation against a server, and prints a table of the outcomes: `queue-worker conformance`, `cargo conformance`.
//!
//! ```text
//! setup (server)  cluster (Citus, if any)  world (environment: pools, stores, a worker)  jobs (job types)
//!   operation groups: store  enqueue  many  wait  run  durable  children  flows  schedule  limits  queries  actions  sql  serve  stores
//!     play (each isolated, with a time limit)  report (table, JSON)  then remove the world
//! ```
//!
//! A run creates only schemas and roles, with names that are unique to the run, and drops them at the end. A run reads no other schemas.

mod actions;
mod children;
mod cluster;
mod durable;
mod enqueue;
mod flows;
mod handlers;
mod jobs;
mod limits;
mod queries;
mod many;
mod play;
mod report;
mod run;
mod schedule;
mod serve;
mod setup;
mod sql;
mod store;
mod stores;
mod wait;
mod world;

#[cfg(test)]
mod covered;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use self::{play::OperationGroup, report::Report, setup::Setup, world::World};

/// Options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// URL of a database in which the login may create schemas; without a URL, an embedded server is started and removed afterwards
    #[arg(long)]
    pub database_url: Option<String>,
    /// URL of the database that bypasses a pooler in transaction mode, for the worker and for waiters
    #[arg(long, requires = "database_url")]
    pub direct_url: Option<String>,
    /// URL of a standby, for read-only operations
    #[arg(long, requires = "database_url")]
    pub read_url: Option<String>,
    /// Use distributed stores, because the server is a node of a Citus cluster. Without this option, stores are distributed if the
    /// database sets `citus.enable_schema_based_sharding`
    #[arg(long, requires = "database_url")]
    pub citus: bool,
    /// Time limit of each operation
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    pub bound: Duration,
    /// Run only operations whose name contains one of the given texts. The store and the worker are always created. Some operations
    /// depend on other operations of their group; to run such an operation, give the name of the group
    #[arg(long)]
    pub only: Vec<String>,
    /// Print only the last line, not the table
    #[arg(long)]
    pub json: bool,
    /// Also show warnings of the worker
    #[arg(long)]
    pub verbose: bool,
}

/// Groups of operations in the order in which they run. The first group creates the store, and the second group starts the worker.
const GROUPS: [&OperationGroup; 16] = [
    &store::MADE,
    &run::STARTED,
    &enqueue::GROUP,
    &many::GROUP,
    &wait::GROUP,
    &run::GROUP,
    &durable::GROUP,
    &children::GROUP,
    &flows::GROUP,
    &schedule::GROUP,
    &limits::GROUP,
    &queries::GROUP,
    &actions::GROUP,
    &sql::GROUP,
    &serve::GROUP,
    &stores::GROUP,
];

/// Runs a program that calls [`run`]. Installs the logger and a panic hook that omits intentional panics of handlers. Exits with 0 if
/// `program` returns true, with 1 if it returns false, and with 2 if it fails.
pub fn main(is_verbose: bool, program: impl Future<Output = Result<bool>>) -> ExitCode {
    let level = if is_verbose { LevelFilter::WARN } else { LevelFilter::OFF };
    let print = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(level);
    tracing_subscriber::registry().with(print).with(queue_worker::logs()).init();
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some(handlers::PANIC) {
            shown(panic);
        }
    }));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::from(2);
        }
    };
    match runtime.block_on(program) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the operations on the server that the options select, and prints a report under the name `setup`. Returns whether the run was not
/// interrupted and no operation failed or was refused.
///
/// # Errors
/// Returns an error if the server is unreachable, or if the login may not create schemas.
pub async fn run(setup: &str, options: &Options) -> Result<bool> {
    let setup = Setup::new(setup, options).await?;
    let mut report = Report::new(setup.name(), setup.server().await?, options.json);
    let world = World::new(setup).await?;
    let play = play::all(&world, &GROUPS, (options.bound, options.only.as_slice()), &mut report);
    let is_whole = tokio::select! {
        () = play => true,
        () = queue_worker::shutdown_signal() => false,
    };
    if !is_whole {
        report.note("interrupted", "by a signal".to_owned());
    }
    // The cleanup also runs after an operation has failed or panicked.
    play::end(world, &mut report, options.bound).await;
    report.print();
    Ok(is_whole && report.holds())
}

/// Prints the report of a run that was skipped for the reason `why`.
pub fn report_skipped(setup: &str, why: &str) {
    Report::skipped(setup, why).print();
}

/// Locks a mutex. A poisoned lock stays usable, because no update under the locks of this crate can be left incomplete.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
