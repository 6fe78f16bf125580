//! `stores`: the commands of many stores. Each does to all of them, or to one by its name, what a command of a single store does to that.

mod act;
mod jobs;
mod known;
mod look;
mod open;
mod run;
pub(super) mod settings;
mod tenants;
mod told;

use std::process::ExitCode;

use clap::Subcommand;
use queue_core::stores::StoreJob;

use self::settings::{StoresSettings, StoresWorkerSettings};
use super::{
    act_args::ActCommand,
    chosen::List,
    named::JobName as _,
    problem::{BoxError, Problem},
    settings::{Settings, WorkerSettings},
    values::Output,
};
use crate::worker::Worker;

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker stores migrate                       the tables in which it stands which stores there are, and where tenants are
  queue-worker stores add jobs_a main jobs_a --migrate     a store more: a schema of the database `main`, which is made first
  queue-worker stores counts                        how many jobs each store has in each state
  queue-worker stores jobs --state dead             the dead letters of all stores, each as STORE/ID
  queue-worker stores why jobs_a/1879032461361152001
  queue-worker stores requeue --all --type send_email      in every store; it says how many, and asks
  queue-worker stores move acme jobs_b --wait       move a tenant, and wait until nothing of it is left in its old store
  queue-worker stores run --slots 50                run jobs of all stores, and tend to stores and moves

Which stores there are stands in the schema `homes` (--homes) of the database that DATABASE_URL names. That database is called `main`;
others are named by --database, or in the file:
  [stores]
  homes = \"homes\"
  [stores.databases]
  eu = \"postgres://app@db.eu/app\"
A store that does not answer is told of beside the others' answers, and the exit code is 1.";

/// What is done with many stores.
#[derive(clap::Args)]
pub(super) struct StoresArgs {
    #[command(flatten)]
    settings: StoresSettings,
    #[command(subcommand)]
    command: StoresCommand,
}

#[derive(Subcommand)]
enum StoresCommand {
    /// Run jobs of all stores until SIGTERM or SIGINT, and tend to them: new stores are picked up, and moves of tenants brought to their ends
    #[command(after_long_help = "\
Examples:
  queue-worker stores run --slots 50 --queue mail=20
  queue-worker stores run --migrate                 bring the tables of placements and all stores up to date first

Options of a worker are those of each store: with --concurrency 20 each has 20 handlers at once at most. State is made once, with
the pool of the database that is named everywhere, and shared. A store or database that is not there keeps nobody from the others.")]
    Run {
        #[command(flatten)]
        worker: Box<WorkerSettings>,
        #[command(flatten)]
        stores: StoresWorkerSettings,
    },
    /// Create the tables in which it stands which stores there are and where tenants are, or bring them up to date, in all databases named
    Migrate {
        /// The tables of every store, too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: Output,
    },
    /// List the stores, and how many tenants are in each; asks none of them
    List(Output),
    /// Count jobs by state in each store, and in all
    #[command(after_long_help = "\
A number with a + is counted so far and no further: there may be more. With --json such a number has \"partial\": true.")]
    Counts(Output),
    /// List jobs of all stores, the newest first
    #[command(after_long_help = "\
Examples:
  queue-worker stores jobs --state dead --limit 20
  queue-worker stores jobs --meta of_tenant=acme    those of a tenant, wherever they are
  queue-worker stores jobs --state dead --json | jq -r '.jobs[].store_job'")]
    Jobs(List),
    /// Show one job, with why each attempt failed
    Show {
        /// The job, as `jobs` shows it
        #[arg(value_name = StoreJob::SHOWN, value_parser = StoreJob::read)]
        job: StoreJob,
        /// Show its payload and its output too
        #[arg(long)]
        payload: bool,
        /// Show what its attempts have logged, if its type keeps that
        #[arg(long)]
        logs: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Say why a job is not running, the most likely cause first, and what to do about it
    Why {
        /// The job, as `jobs` shows it
        #[arg(value_name = StoreJob::SHOWN, value_parser = StoreJob::read)]
        job: StoreJob,
        #[command(flatten)]
        output: Output,
    },
    #[command(flatten)]
    Act(ActCommand<StoreJob>),
    /// Make a store known: from then on it takes new tenants, and is worked on; one that was closed is open again
    #[command(after_long_help = "\
Examples:
  queue-worker stores add jobs_a main jobs_a        the schema jobs_a of the database `main`, which is migrated
  queue-worker stores add eu_1 eu jobs --migrate --database eu=postgres://app@db.eu/app

Programs that do not know the database by this name leave the store alone, and say so.")]
    Add {
        /// What it is called
        name: String,
        /// The name of its database
        database: String,
        /// Its schema there
        #[arg(id = "schema_there", value_name = "SCHEMA")]
        schema: String,
        /// Create its tables and those of placements first, or bring them up to date
        #[arg(long)]
        migrate: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Let no new tenants come into a store; those that are there stay, and `add` opens it again
    Close {
        /// The store
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Take a store in which no tenant is off the list; its tables stay, and nobody works on them
    Remove {
        /// The store
        name: String,
        /// Do not ask, whatever waits in it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Say in which store a tenant is
    Where {
        /// The tenant's key
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Put a new tenant into a store
    Place {
        /// The tenant's key
        key: String,
        /// The store
        store: String,
        #[command(flatten)]
        output: Output,
    },
    /// Move a tenant into another store: what is enqueued goes there at once, and what waits in the old one is run there
    #[command(after_long_help = "\
Examples:
  queue-worker stores move acme jobs_b              begin; `stores run`, or any program that tends to stores, brings it to its end
  queue-worker stores move acme jobs_b --wait       and wait for that, or go on with it

A move loses nothing, and can be broken off anywhere: the same command goes on with it. What it promises is in docs/STORES.md.")]
    Move {
        /// The tenant's key
        key: String,
        /// Where to
        store: String,
        /// Return once nothing of the tenant is left to run in its old store
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        output: Output,
    },
    /// List the tenants that move, those first that have for longest
    Moves(Output),
}

impl StoresArgs {
    /// Whether it runs jobs.
    pub(super) fn runs(&self) -> bool {
        matches!(self.command, StoresCommand::Run { .. })
    }

    /// What only these commands have.
    pub(super) fn settings(&self) -> Settings {
        match &self.command {
            StoresCommand::Run { worker, stores } => {
                let worker = WorkerSettings::clone(worker);
                Settings { worker, stores: self.settings.clone().and(stores.clone()), ..Settings::default() }
            }
            _ => Settings { stores: self.settings.clone(), ..Settings::default() },
        }
    }
}

pub(super) async fn stores(
    settings: &Settings,
    args: StoresArgs,
    prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>,
) -> Result<ExitCode, Problem> {
    match args.command {
        StoresCommand::Run { .. } => run::run(settings, prepare).await?,
        StoresCommand::Migrate { all, output } => return known::migrate(settings, all, output.json).await,
        StoresCommand::List(output) => look::list(settings, output.json).await?,
        StoresCommand::Counts(output) => return look::counts(settings, output.json).await,
        StoresCommand::Jobs(list) => return jobs::jobs(settings, &list).await,
        StoresCommand::Show { job, payload, logs, output } => jobs::show(settings, &job, (payload, logs), output.json).await?,
        StoresCommand::Why { job, output } => return jobs::why(settings, &job, output.json).await,
        StoresCommand::Act(command) => return act::act(settings, command).await,
        StoresCommand::Add { name, database, schema, migrate, output } => {
            known::add(settings, (&name, &database, &schema), migrate, output.json).await?;
        }
        StoresCommand::Close { name, output } => known::close(settings, &name, output.json).await?,
        StoresCommand::Remove { name, yes, output } => known::remove(settings, &name, yes, output.json).await?,
        StoresCommand::Where { key, output } => tenants::find(settings, &key, output.json).await?,
        StoresCommand::Place { key, store, output } => tenants::place(settings, &key, &store, output.json).await?,
        StoresCommand::Move { key, store, wait, output } => tenants::move_tenant(settings, (&key, &store), wait, output.json).await?,
        StoresCommand::Moves(output) => tenants::moves(settings, output.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}
