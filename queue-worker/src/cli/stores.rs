//! `stores` command: manages stores and tenants, and runs other commands on one store or on all stores.

mod act;
mod jobs;
mod manage;
mod overview;
mod open;
mod pause;
mod run;
pub(super) mod settings;
mod tenants;
mod failures;

use std::process::ExitCode;

use clap::Subcommand;
use queue_core::stores::StoreJob;

use self::settings::{StoresSettings, StoresWorkerSettings};
use super::{
    act_args::ActCommand,
    job_name::JobName as _,
    pause::{PauseArgs, PauseScopeArgs},
    problem::{BoxError, Problem},
    selection::ListArgs,
    settings::{Settings, WorkerSettings},
    values::OutputArgs,
};
use crate::worker::Worker;

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker stores migrate                       create the placement tables, which list stores and tenants
  queue-worker stores add jobs_a main jobs_a --migrate     another store: a schema of the database `main`, created first
  queue-worker stores counts                        job counts by state of each store
  queue-worker stores jobs --state dead             dead letters of all stores, shown as STORE/ID
  queue-worker stores why jobs_a/1879032461361152001
  queue-worker stores requeue --all --type send_email      in every store; shows the count and asks for confirmation
  queue-worker stores move acme jobs_b --wait       move a tenant, and wait until its old store has no more of its jobs
  queue-worker stores drain jobs_a --wait           move all tenants of a store to others
  queue-worker stores run --slots 50                run jobs of all stores, and maintain stores and moves

The list of stores is in the schema `homes` (--homes) of the database of DATABASE_URL. That database is called `main`;
name others with --database, or in the file:
  [stores]
  homes = \"homes\"
  [stores.databases]
  eu = \"postgres://app@db.eu/app\"
A store that does not answer is reported beside the results of the others, with exit code 1.";

/// Arguments of `stores`.
#[derive(clap::Args)]
pub(super) struct StoresArgs {
    #[command(flatten)]
    settings: StoresSettings,
    #[command(subcommand)]
    command: StoresCommand,
}

#[derive(Subcommand)]
enum StoresCommand {
    /// Run jobs of all stores and maintain the stores until SIGTERM or SIGINT; also serve new stores and complete tenant moves
    #[command(after_long_help = "\
Examples:
  queue-worker stores run --slots 50 --queue mail=20
  queue-worker stores run --migrate                 migrate the placement tables and all stores first

Worker options apply to each store: with --concurrency 20 each store runs at most 20 handlers. State is created once, with
the pool of the database of DATABASE_URL, and shared. An unavailable store or database does not affect the others.")]
    Run {
        #[command(flatten)]
        worker: Box<WorkerSettings>,
        #[command(flatten)]
        stores: StoresWorkerSettings,
    },
    /// Create or update the placement tables, which list stores and tenants, in all named databases
    Migrate {
        /// Also migrate every store's tables
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List stores with their number of tenants, without querying the stores
    List(OutputArgs),
    /// Count jobs by state, per store and in total
    #[command(after_long_help = "\
A number with a + is a lower bound, because counting stops there. With --json such a number has \"partial\": true.")]
    Counts(OutputArgs),
    /// List jobs of all stores, newest first
    #[command(after_long_help = "\
Examples:
  queue-worker stores jobs --state dead --limit 20
  queue-worker stores jobs --meta of_tenant=acme    jobs of a tenant, in all stores
  queue-worker stores jobs --state dead --json | jq -r '.jobs[].store_job'")]
    Jobs(ListArgs),
    /// Show a job with the errors of its attempts
    Show {
        /// Job name, as shown by `stores jobs`
        #[arg(value_name = StoreJob::PLACEHOLDER, value_parser = StoreJob::parse_name)]
        job: StoreJob,
        /// Include the payload and the output
        #[arg(long)]
        payload: bool,
        /// Include the logs of the attempts, if the job type keeps them
        #[arg(long)]
        logs: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Explain why a job is not running, most likely cause first, and suggest fixes
    Why {
        /// Job name, as shown by `stores jobs`
        #[arg(value_name = StoreJob::PLACEHOLDER, value_parser = StoreJob::parse_name)]
        job: StoreJob,
        #[command(flatten)]
        output: OutputArgs,
    },
    #[command(flatten)]
    Act(ActCommand<StoreJob>),
    /// Stop the workers of all stores from starting jobs (of a queue, of a job type, or all jobs); running jobs finish
    #[command(after_long_help = "\
Examples:
  queue-worker stores pause --queue mail --reason 'the mail server is moving'
  queue-worker stores pause --all --wait            return once no worker of any store starts jobs

It lasts until `stores resume`, or `resume` in one store. A store that is added later is not paused.")]
    Pause(PauseArgs),
    /// End a pause (of a queue, of a job type, or of all jobs) in all stores
    #[command(after_long_help = "\
Examples:
  queue-worker stores resume --queue mail")]
    Resume(PauseScopeArgs),
    /// List the pauses of all stores
    Pauses(OutputArgs),
    /// Add a store, or reopen a closed store; the store takes new tenants, and workers serve it
    #[command(after_long_help = "\
Examples:
  queue-worker stores add jobs_a main jobs_a        the schema jobs_a of the database `main`, already migrated
  queue-worker stores add eu_1 eu jobs --migrate --database eu=postgres://app@db.eu/app

Programs without a database of this name skip the store and log that.")]
    Add {
        /// Store name
        name: String,
        /// Name of the store's database
        database: String,
        /// Schema of the store in its database
        #[arg(id = "schema_there", value_name = "SCHEMA")]
        schema: String,
        /// First create or update the store's tables and the placement tables
        #[arg(long)]
        migrate: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Stop a store from taking new tenants; existing tenants stay, and `add` reopens the store
    Close {
        /// Store name
        name: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Close a store and move all its tenants to other stores
    #[command(after_long_help = "\
Examples:
  queue-worker stores drain jobs_a                  each tenant to the open store that its key chooses
  queue-worker stores drain jobs_a --to jobs_b --wait

`stores run`, or any program that maintains stores, completes the moves; see `stores move`. Run the command again for tenants
that were just being placed in the store or moving there.")]
    Drain {
        /// Store name
        name: String,
        /// Destination store of all tenants; default: the open store that the hash of each tenant's key chooses
        #[arg(long, value_name = "STORE")]
        to: Option<String>,
        /// Return once no tenant is leaving the store
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove a store without tenants from the list; its tables stay, but workers no longer serve it
    Remove {
        /// Store name
        name: String,
        /// Do not ask for confirmation, even if jobs are waiting in the store
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the store of a tenant
    Where {
        /// Tenant key
        key: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Place a new tenant into a store
    Place {
        /// Tenant key
        key: String,
        /// Store name
        store: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Move a tenant to another store; new jobs go there, and waiting jobs still run in the old store
    #[command(after_long_help = "\
Examples:
  queue-worker stores move acme jobs_b              start; `stores run`, or any program that maintains stores, completes it
  queue-worker stores move acme jobs_b --wait       and wait until it is finished; also continues a started move

A move loses no jobs and can be interrupted at any point; the same command continues it. docs/STORES.md describes its guarantees.")]
    Move {
        /// Tenant key
        key: String,
        /// Name of the destination store
        store: String,
        /// Return once all jobs of the tenant in the old store are finished
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List moving tenants, longest move first
    Moves(OutputArgs),
}

impl StoresArgs {
    /// Returns whether the command runs jobs.
    pub(super) fn runs(&self) -> bool {
        matches!(self.command, StoresCommand::Run { .. })
    }

    /// Returns the settings that are specific to `stores` commands.
    pub(super) fn settings(&self) -> Settings {
        match &self.command {
            StoresCommand::Run { worker, stores } => {
                let worker = WorkerSettings::clone(worker);
                Settings { worker, stores: self.settings.clone().with_worker(stores.clone()), ..Settings::default() }
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
        StoresCommand::Migrate { all, output } => return manage::migrate(settings, all, output.json).await,
        StoresCommand::List(output) => overview::list(settings, output.json).await?,
        StoresCommand::Counts(output) => return overview::counts(settings, output.json).await,
        StoresCommand::Jobs(list) => return jobs::jobs(settings, &list).await,
        StoresCommand::Show { job, payload, logs, output } => jobs::show(settings, &job, (payload, logs), output.json).await?,
        StoresCommand::Why { job, output } => return jobs::why(settings, &job, output.json).await,
        StoresCommand::Act(command) => return act::act(settings, command).await,
        StoresCommand::Pause(args) => return pause::pause(settings, &args).await,
        StoresCommand::Resume(which) => return pause::resume(settings, &which).await,
        StoresCommand::Pauses(output) => return pause::pauses(settings, output.json).await,
        StoresCommand::Add { name, database, schema, migrate, output } => {
            manage::add(settings, (&name, &database, &schema), migrate, output.json).await?;
        }
        StoresCommand::Close { name, output } => manage::close(settings, &name, output.json).await?,
        StoresCommand::Drain { name, to, wait, output } => tenants::drain(settings, (&name, to.as_deref()), wait, output.json).await?,
        StoresCommand::Remove { name, yes, output } => manage::remove(settings, &name, yes, output.json).await?,
        StoresCommand::Where { key, output } => tenants::find(settings, &key, output.json).await?,
        StoresCommand::Place { key, store, output } => tenants::place(settings, &key, &store, output.json).await?,
        StoresCommand::Move { key, store, wait, output } => tenants::move_tenant(settings, (&key, &store), wait, output.json).await?,
        StoresCommand::Moves(output) => tenants::moves(settings, output.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}
