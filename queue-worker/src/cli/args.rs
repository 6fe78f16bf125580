//! Command-line arguments. The doc comments of the arguments are their help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use queue_core::JobId;

#[cfg(feature = "dashboard")]
use super::dashboard_settings::DashboardSettings;
use super::{
    act_args::ActCommand,
    conformance::{self, ConformanceArgs},
    cron::CronCommand,
    doctor::DoctorArgs,
    enqueue::{self, EnqueueArgs},
    flow::{self, FlowArgs},
    help::HelpCommand,
    history::HistoryArgs,
    limits::LimitsCommand,
    pause::{PauseArgs, PauseScopeArgs},
    selection::{ExportArgs, ListArgs, TailArgs},
    settings::{GLOBAL_HEADING, Settings, WorkerSettings},
    signal::{self, SignalArgs},
    stores::{self, StoresArgs},
    try_one::{self, TryArgs},
    values::{ExactArgs, NewCapacity, NewWeight, OutputArgs, id, new_capacity, new_weight},
};

/// Runs and operates a job queue on PostgreSQL.
#[derive(Parser)]
#[command(
    name = "queue-worker",
    version,
    about = "Runs and operates a job queue that lives in PostgreSQL",
    after_long_help = MANUAL,
    propagate_version = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(super) struct Args {
    /// Settings file (default: `queue.toml`, if it exists)
    #[arg(long, global = true, env = "QUEUE_CONFIG", value_name = "FILE", help_heading = GLOBAL_HEADING)]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
    #[command(subcommand)]
    pub(super) command: Command,
}

const MANUAL: &str = "\
Examples:
  queue-worker run                                  run every job type of this binary, on every queue
  queue-worker run --queue mail=20 --queue reports  two queues, 20 handlers at a time for mail
  queue-worker stats                                job counts, waiting times and workers
  queue-worker history                              attempt outcomes and run times of the last hour
  queue-worker list --state dead --queue mail       the dead letters of one queue
  queue-worker show 1879032461361152001             one job, with the errors of its attempts
  queue-worker why 1879032461361152001              why it is not running, and how to fix it
  queue-worker doctor                               problems of the store and its server, and their fixes
  queue-worker requeue --all --type send_email      retry every dead send_email; shows the count and asks for confirmation

Settings come from, in this order: option, environment (QUEUE_..., DATABASE_URL), file, default. The file is TOML:
  database_url = \"postgres://app@db.internal/app\"
  schema = \"queue\"
  log = \"info\"
  [worker]
  queues = [\"mail=20\", \"reports\"]
  lease_ttl = \"30s\"
A queue.toml in the working directory is read if no other user can have written it. Unknown QUEUE_ variables cause a warning.
A duration is written `30s`, `5m`, `1h 30m` or `7d`. Months and years differ in length and are not accepted.
With --embedded, in a development build also without a database URL, a private PostgreSQL is started from the binaries on this machine. It
stops when it is no longer used.

Exit codes:
  0  done
  1  failed: the database is unavailable, the store is not migrated, a worker cannot start
  2  wrong usage or configuration
  3  the job, store, tenant or pause does not exist, or its state does not permit the operation";

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run jobs until SIGTERM or SIGINT
    #[command(after_long_help = "\
Examples:
  queue-worker run --migrate                        bring the schema up to date first
  QUEUE_QUEUES=mail=20,reports queue-worker run     the same options from the environment
  queue-worker run --health '[::]:8080'             serve /livez and /readyz, if built with the feature `health`

A signal stops claiming. Running handlers have the grace period to finish; other claimed jobs are given back without counting an attempt.
A second signal, at least a second later, ends the process immediately.")]
    Run {
        #[command(flatten)]
        worker: WorkerSettings,
        #[cfg(feature = "dashboard")]
        #[command(flatten)]
        dashboard: DashboardSettings,
    },
    /// Serve the dashboard (pages and JSON API) until SIGTERM or SIGINT
    #[cfg(feature = "dashboard")]
    #[command(after_long_help = "\
Examples:
  queue-worker dashboard                            on http://127.0.0.1:7070, reachable from this machine only
  QUEUE_DASHBOARD_TOKEN=.. queue-worker dashboard --addr '[::]:7070' --dashboard-host queue.example.com
  queue-worker run --dashboard 127.0.0.1:7070       beside a worker

An address that other machines can reach requires a token. The dashboard has three connections of its own. Browsers must address it by
a name of this machine, or by one given with --dashboard-host.")]
    Dashboard {
        /// Address to listen on (default: 127.0.0.1:7070)
        #[arg(long, value_name = "ADDR", value_parser = super::values::address)]
        addr: Option<std::net::SocketAddr>,
        #[command(flatten)]
        dashboard: DashboardSettings,
    },
    /// Create a store's tables or update them to this release
    #[command(after_long_help = "\
Examples:
  queue-worker migrate                              apply missing migrations; safe to repeat, and from several machines concurrently
  queue-worker migrate print > queue.sql            SQL to apply with other tools
  queue-worker migrate status                       applied migrations, with their times")]
    Migrate {
        #[command(flatten)]
        output: OutputArgs,
        #[command(subcommand)]
        step: Option<MigrateStep>,
    },
    /// Create a store's roles (producer, worker, reader, operator, owner) or update their privileges
    #[command(after_long_help = "\
Examples:
  queue-worker roles                                create queue_producer and the others; then: grant queue_producer to web
  queue-worker roles --print > roles.sql            SQL to apply with other tools
  queue-worker roles --producer mailer --queue mail a role that may enqueue only into the queue mail

Run it again after each migration. It requires a user that may create roles and owns the store.")]
    Roles(RolesArgs),
    /// List the job types of this binary with their options
    Jobs(OutputArgs),
    /// Count jobs by queue, type and state; list workers and the longest waiting jobs
    #[command(after_long_help = "\
The time it takes does not depend on the number of jobs. A number with a + is a lower bound, because counting stops there;
for finished jobs even 0+ is possible. With --json such a number has \"partial\": true.")]
    Stats {
        /// Show all queues and types instead of the 50 with the most jobs
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        exact: ExactArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show attempt outcomes, throughput, run times and start delays
    #[command(after_long_help = "\
Examples:
  queue-worker history                              the last hour, a row for each queue and type
  queue-worker history --last 1d --by time --queue mail
  queue-worker history --last 7d --by time --step 1h --json

Workers write these metrics every ten seconds. `start` is the delay from ready to the start of the handler. Quantiles are accurate
to a histogram bucket: 1, 2, 5, 10 ms and so on. A row `*` combines queues and types beyond the maximum number of rows.")]
    History(HistoryArgs),
    /// List jobs, newest first
    #[command(after_long_help = "\
Examples:
  queue-worker list --state dead --limit 20
  queue-worker list --queue mail --before 1879032461361152001    the page after this job
  queue-worker list --state dead --json | jq -r '.jobs[].id'")]
    List(ListArgs),
    /// Follow jobs until Ctrl-C, one line per change; with an id, follow one job until it is finished
    #[command(after_long_help = "\
Examples:
  queue-worker tail                                 all changes, starting with the last 10 jobs
  queue-worker tail --queue mail -n 0
  queue-worker tail 1879032461361152001             one job until it is finished
  queue-worker tail --type send_email --json | jq -r 'select(.state == \"dead\").id'

It polls the newest 500 jobs and 500 running ones twice a second. Under higher load it shows only some of the changes.")]
    Tail(TailArgs),
    /// Show a job with the errors of its attempts
    #[command(after_long_help = "`queue-worker why ID` explains why it is not running.")]
    Show {
        /// Job id
        #[arg(value_parser = id)]
        id: JobId,
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
    #[command(after_long_help = "\
The first line is the main cause. Other causes, the errors of attempts, and fixes (commands, SQL or advice) follow. For a finished job it
shows how the job ended. It only reads, does not wait for locks, and never shows payloads.

Examples:
  queue-worker why 1879032461361152001
  queue-worker why 1879032461361152001 --json | jq -r '.causes[0].kind'

Exit code 3 if the job does not exist; the answer then explains that.")]
    Why {
        /// Job id
        #[arg(value_parser = id)]
        id: JobId,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Monitor queues, workers and running jobs on a terminal, updated every second; `q` quits
    #[cfg(feature = "top")]
    #[command(after_long_help = "\
Keys: q quits, arrows and page up and down scroll, tab selects the next panel, s sorts queues by another column.

It only reads, the same data as `stats` and `history`. While the database is unavailable it shows the error and the last data.
Exit code 2 without a terminal.")]
    Top,
    /// Run a job's handler in this process, roll back its transaction, and report the result; the job is not changed
    #[command(after_long_help = try_one::MANUAL)]
    Try(TryArgs),
    /// Check the store and its server, and report problems, their consequences and fixes
    #[command(after_long_help = "\
Examples:
  queue-worker doctor
  queue-worker doctor --strict --ignore superuser_worker      in a script: warnings are failures, too
  queue-worker doctor --json | jq -r '.findings[] | select(.can_be_pasted).fix'

It only reads. A check that is blocked, slow or not permitted is reported and does not delay the others. docs/DOCTOR.md lists all findings.

Exit codes: 0 nothing is broken, 1 with --strict if there are warnings, 2 something is broken (or wrong usage)")]
    Doctor(DoctorArgs),
    /// Run every public operation against the server, and report which operations work there
    #[command(after_long_help = conformance::MANUAL)]
    Conformance(ConformanceArgs),
    #[command(flatten)]
    Act(ActCommand<JobId>),
    /// Manage many stores: list stores, place and move tenants, run commands on all stores
    #[command(after_long_help = stores::MANUAL)]
    Stores(StoresArgs),
    /// Show the jobs of a flow and their dependencies, or cancel these jobs
    #[command(after_long_help = flow::MANUAL)]
    Flow(FlowArgs),
    /// Enqueue a job by its type's name, with a payload as JSON
    #[command(after_long_help = enqueue::MANUAL)]
    Enqueue(EnqueueArgs),
    /// Send a signal to a durable job; a job that is waiting for the signal continues
    #[command(after_long_help = signal::MANUAL)]
    Signal(SignalArgs),
    /// Write jobs as JSON lines, newest first, with the errors of their attempts
    #[command(after_long_help = "\
Examples:
  queue-worker export --state dead --since 1d > dead.jsonl
  queue-worker export --state dead --type send_email --payload | jq -r .payload.to

Memory use does not depend on the number of jobs.")]
    Export(ExportArgs),
    /// Stop workers from starting jobs (of a queue, of a job type, or all jobs); running jobs finish
    #[command(after_long_help = "\
Examples:
  queue-worker pause --queue mail --reason 'the mail server is moving'
  queue-worker pause --type send_invoice --wait     return once no worker starts these jobs
  queue-worker pause --all --wait && ./deploy       no job starts; `list --state running` shows those that still run

It lasts until `resume`, across restarts of workers and servers. Waiting jobs stay ready. Jobs that are claimed but not started are given
back without counting an attempt. `pauses` lists pauses. Ctrl-C ends the wait, not the pause.")]
    Pause(PauseArgs),
    /// End a pause (of a queue, of a job type, or of all jobs)
    #[command(after_long_help = "\
Examples:
  queue-worker resume --queue mail
  queue-worker resume --all                         ends `pause --all`; a queue paused separately stays paused")]
    Resume(PauseScopeArgs),
    /// List pauses with their start, operator and reason, the number of waiting ready jobs, and the number of workers that may still
    /// start these jobs
    Pauses(OutputArgs),
    /// Manage schedules, which enqueue jobs at set times
    #[command(after_long_help = "\
Examples:
  queue-worker cron list                            the schedules with their next ticks
  queue-worker cron add ping --type ping --every 15m
  queue-worker cron pause ping                      no ticks until `cron resume ping`, also across deployments
  queue-worker cron next --cron '30 4 * * MON-FRI' --tz Europe/Berlin     the ticks of an expression")]
    Cron {
        #[command(subcommand)]
        command: CronCommand,
    },
    /// Show limits on running jobs and on job starts, with their usage; set limits for all workers
    #[command(after_long_help = "\
Examples:
  queue-worker limits                               limits in force, who set them, their usage, waiting jobs
  queue-worker limits set stripe --concurrency 3 --rate 30/1m --burst 5
  queue-worker limits set type:send_email --concurrency 0 --reason 'until Monday'
  queue-worker limits set queue:render --concurrency none --rate none   no limit, overriding code
  queue-worker limits unset stripe                  the limit from code applies again
  queue-worker limits keys stripe                   keyed limit: keys that hold permits or wait
  queue-worker limits set stripe --key acme --concurrency 10      only this key, overriding the bound per key
  queue-worker limits set stripe --key acme --concurrency none    restore the bound per key

Limits set here override code until they are unset, also across deployments. They take effect immediately; running jobs continue.")]
    Limits {
        #[command(subcommand)]
        command: Option<LimitsCommand>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the capacity of queues and the number of waiting jobs; set a queue's capacity
    #[command(after_long_help = "\
Examples:
  queue-worker capacity                             queues with a capacity
  queue-worker capacity mail 10000                  enqueues are refused while 10,000 jobs wait
  queue-worker capacity mail none                   remove the capacity

A number with a + is a lower bound, because counting stops there.")]
    Capacity {
        /// Show only this queue
        queue: Option<String>,
        /// New maximum number of waiting jobs, or `none`
        #[arg(value_name = "N|none", value_parser = new_capacity)]
        capacity: Option<NewCapacity>,
        #[command(flatten)]
        exact: ExactArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show the weights of fair keys; set a key's weight
    #[command(after_long_help = "\
Examples:
  queue-worker weight                               fair keys with a weight
  queue-worker weight render acme 3                 jobs of `acme` get three turns per turn of any other key
  queue-worker weight render acme none              the same number of turns as any other key")]
    Weight {
        /// Show only the weights of this job type, by its stored name
        #[arg(value_name = "TYPE")]
        job_type: Option<String>,
        /// Show only this fair key
        key: Option<String>,
        /// Number of turns of the key for each turn of a key without a weight, from 1 to 1000, or `none` for 1
        #[arg(value_name = "N|none", value_parser = new_weight)]
        weight: Option<NewWeight>,
        #[command(flatten)]
        output: OutputArgs,
    },
    #[command(flatten)]
    Help(HelpCommand),
}

impl Command {
    /// Returns whether the command runs jobs.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Run { .. }) || matches!(self, Self::Stores(args) if args.runs())
    }
}

#[derive(clap::Args)]
pub(super) struct RolesArgs {
    /// Print the SQL without connecting to a database
    #[arg(long)]
    pub(super) print: bool,
    /// Prefix of the role names (default: the schema)
    #[arg(long, value_name = "NAME", conflicts_with = "producer")]
    pub(super) prefix: Option<String>,
    /// Create only this role: a producer restricted to the queues given with --queue
    #[arg(long, value_name = "ROLE", requires = "queues")]
    pub(super) producer: Option<String>,
    /// Queue that the producer can enqueue into; may be repeated
    #[arg(long = "queue", id = "queues", value_name = "QUEUE", requires = "producer")]
    pub(super) queues: Vec<String>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Clone, Copy, Subcommand)]
pub(super) enum MigrateStep {
    /// Apply missing migrations (the default)
    Run,
    /// Print the SQL of a new store without connecting to a database
    Print,
    /// Show which migrations are applied
    Status,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
