//! `cargo conformance`: runs every public operation against a given server, and prints a table of the outcomes.
//!
//! ```text
//! setup (server)  cluster (Citus, if any)  world (environment: pools, stores, a worker)  jobs (job types)
//!   operation groups: store  enqueue  many  wait  run  durable  children  flows  schedule  limits  queries  actions  sql  serve  stores
//!     play (each isolated, with a time limit)  report (table, JSON)  then remove the world
//! ```
//!
//! A run creates objects only in three schemas, and roles with names that are unique to the run. The schemas and roles are removed at the
//! end. A run reads no other schemas.

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
use clap::Parser;
use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use self::{
    play::OperationGroup,
    report::Report,
    setup::{On, Setup},
    world::World,
};

/// Run every public operation against a server, and report which operations work there
#[derive(Debug, Parser)]
#[command(name = "cargo conformance")]
struct Args {
    /// URL of a database in which the login may create schemas (default: an embedded server that is removed afterwards)
    #[arg(long, conflicts_with = "on")]
    database_url: Option<String>,
    /// URL of the database that bypasses a pooler in transaction mode, for the worker and for waiters
    #[arg(long, requires = "database_url")]
    direct_url: Option<String>,
    /// URL of a standby, for read-only operations
    #[arg(long, requires = "database_url")]
    read_url: Option<String>,
    /// Use distributed stores, because the server is a node of a Citus cluster. Without this option, stores are distributed if the
    /// database sets `citus.enable_schema_based_sharding`
    #[arg(long, requires = "database_url")]
    citus: bool,
    /// Start servers of this kind for the run
    #[arg(long)]
    on: Option<On>,
    /// Time limit of each operation
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    bound: Duration,
    /// Run only operations whose name contains one of the given texts. The store and the worker are always created. Some operations
    /// depend on other operations of their group; to run such an operation, give the name of the group
    #[arg(long)]
    only: Vec<String>,
    /// Print only the last line, not the table
    #[arg(long)]
    json: bool,
    /// Also show warnings of the worker
    #[arg(long)]
    verbose: bool,
}

/// Groups of operations in the order in which they run. The first group creates the store, the second starts the worker, and the last
/// stops the worker.
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

/// Entry point of the binary.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let level = if args.verbose { LevelFilter::WARN } else { LevelFilter::OFF };
    let print = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(level);
    tracing_subscriber::registry().with(print).with(queue_worker::logs()).init();
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Intentional panics of handlers are not printed.
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
    match runtime.block_on(conform(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the operations. Returns whether no operation failed.
async fn conform(args: &Args) -> Result<bool> {
    let setup = match (&args.database_url, args.on) {
        (Some(url), _) => {
            let urls = [Some(url.as_str()), args.direct_url.as_deref(), args.read_url.as_deref()];
            Setup::given(urls, args.citus).await?
        }
        (None, Some(on)) => match Setup::on(on).await? {
            Ok(setup) => setup,
            Err(why) => {
                tests::skipped(&format!("cargo conformance --on {on}"), &why);
                Report::skipped(&on.to_string(), &why).print();
                return Ok(true);
            }
        },
        (None, None) => Setup::embedded().await?,
    };
    let mut report = Report::new(setup.name(), setup.server().await?, args.json);
    let world = World::new(setup).await?;
    let play = play::all(&world, &GROUPS, (args.bound, args.only.as_slice()), &mut report);
    let is_whole = tokio::select! {
        () = play => true,
        _ = tokio::signal::ctrl_c() => false,
    };
    if !is_whole {
        report.note("interrupted", "ctrl-c".to_owned());
    }
    // The cleanup also runs after an operation has failed or panicked.
    play::end(world, &mut report, args.bound).await;
    report.print();
    Ok(is_whole && report.holds())
}
