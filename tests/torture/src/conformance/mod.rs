//! `cargo conformance`: every public operation, played on a server of anybody's, and a table of what holds there.
//!
//! ```text
//! setup (which server)  cluster (if it is Citus)  world (what operations find there: pools, a store of the run's own, a worker)  jobs (job types)
//!   rooms of operations: store  enqueue  many  wait  run  durable  children  flows  schedule  limits  look  act  sql  serve  stores
//!     play (each within its bound, by itself)  report (table, JSON)  then the world is removed
//! ```
//!
//! All that it makes is in three schemas and under roles with a name made for the run, which are removed at the end. It never looks at anybody else's.

mod act;
mod children;
mod cluster;
mod durable;
mod enqueue;
mod flows;
mod handlers;
mod jobs;
mod limits;
mod look;
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
    play::Room,
    report::Report,
    setup::{On, Setup},
    world::World,
};

/// Plays every public operation on a server, and says what holds there.
#[derive(Debug, Parser)]
#[command(name = "cargo conformance")]
struct Args {
    /// The server: a database in which the login may create schemas. Default: an embedded one that is gone afterwards.
    #[arg(long, conflicts_with = "on")]
    database_url: Option<String>,
    /// Past a pooler that gives each transaction another session: for the worker and those who wait.
    #[arg(long, requires = "database_url")]
    direct_url: Option<String>,
    /// A standby, for all that only looks.
    #[arg(long, requires = "database_url")]
    read_url: Option<String>,
    /// Of a Citus cluster: its stores are distributed ones. Without it they are if the database has `citus.enable_schema_based_sharding` set.
    #[arg(long, requires = "database_url")]
    citus: bool,
    /// Servers of its own, made for the run.
    #[arg(long)]
    on: Option<On>,
    /// No operation may take longer.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    bound: Duration,
    /// Only the operations whose name contains this, or one of these, with a store and a worker. Some stand on others of their room: name that.
    #[arg(long)]
    only: Vec<String>,
    /// No table: only the last line.
    #[arg(long)]
    json: bool,
    /// Shows warnings of the worker too.
    #[arg(long)]
    verbose: bool,
}

/// In the order in which they are played. The store is made in the first; the worker runs from the second on and stops in the last.
const ROOMS: [&Room; 16] = [
    &store::MADE,
    &run::STARTED,
    &enqueue::ROOM,
    &many::ROOM,
    &wait::ROOM,
    &run::ROOM,
    &durable::ROOM,
    &children::ROOM,
    &flows::ROOM,
    &schedule::ROOM,
    &limits::ROOM,
    &look::ROOM,
    &act::ROOM,
    &sql::ROOM,
    &serve::ROOM,
    &stores::ROOM,
];

/// What the binary does.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let level = if args.verbose { LevelFilter::WARN } else { LevelFilter::OFF };
    let print = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(level);
    tracing_subscriber::registry().with(print).with(queue_worker::logs()).init();
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A handler does so on purpose.
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

/// Whether nothing failed.
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
    let play = play::all(&world, &ROOMS, (args.bound, args.only.as_slice()), &mut report);
    let is_whole = tokio::select! {
        () = play => true,
        _ = tokio::signal::ctrl_c() => false,
    };
    if !is_whole {
        report.note("interrupted", "ctrl-c".to_owned());
    }
    // After a failure, and after a panic of an operation, too.
    play::end(world, &mut report, args.bound).await;
    report.print();
    Ok(is_whole && report.holds())
}
