//! What can be said on the command line. The texts here are the manual.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use queue_core::JobId;

#[cfg(feature = "dashboard")]
use super::dashboard_settings::DashboardSettings;
use super::{
    act_args::ActCommand,
    chosen::{Export, List, Tail},
    cron::CronCommand,
    doctor::DoctorArgs,
    flow::{self, FlowArgs},
    help::HelpCommand,
    history::HistoryArgs,
    limits::LimitsCommand,
    pause::{PauseArgs, Which},
    settings::{EVERYWHERE, Settings, WorkerSettings},
    signal::{self, SignalArgs},
    stores::{self, StoresArgs},
    try_one::{self, TryArgs},
    values::{Exact, NewCapacity, NewWeight, Output, id, new_capacity, new_weight},
};

/// Runs and operates a job queue that lives in PostgreSQL.
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
    /// Settings file; default ./queue.toml if there is one
    #[arg(long, global = true, env = "QUEUE_CONFIG", value_name = "FILE", help_heading = EVERYWHERE)]
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
  queue-worker stats                                how many jobs are where, and who works
  queue-worker history                              what came of the last hour, and how long it took
  queue-worker list --state dead --queue mail       the dead letters of one queue
  queue-worker show 1879032461361152001             one job, with why each attempt failed
  queue-worker why 1879032461361152001              why it is not running, and what to do about it
  queue-worker doctor                               what is wrong with the store or its server, and what cures it
  queue-worker requeue --all --type send_email      try every dead send_email again; it says how many, and asks

Settings come from, in this order: option, environment (QUEUE_..., DATABASE_URL), file, default. The file is TOML:
  database_url = \"postgres://app@db.internal/app\"
  schema = \"queue\"
  log = \"info\"
  [worker]
  queues = [\"mail=20\", \"reports\"]
  lease_ttl = \"30s\"
A queue.toml in the working directory is read if nobody else can have written it. A QUEUE_ variable that is no setting is told.
A duration is written `30s`, `5m`, `1h 30m` or `7d`; months and years differ in length, and are none.
With --embedded, in a development build also without a database URL, a private PostgreSQL is started from the binaries on this machine, and
stopped when it is not used any more.

Exit codes:
  0  done
  1  failed: the database is away, the store is not migrated, a worker cannot start
  2  wrong usage or configuration
  3  no such job, store or tenant, or it is in a state in which this cannot be done; nothing is paused that `resume` names";

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run jobs until SIGTERM or SIGINT
    #[command(after_long_help = "\
Examples:
  queue-worker run --migrate                        bring the schema up to date first
  QUEUE_QUEUES=mail=20,reports queue-worker run     the same options from the environment
  queue-worker run --health '[::]:8080'             say at /livez and /readyz how it is, if built with the feature `health`

A signal stops claiming; handlers may go on for the grace period, the rest goes back uncharged. A second signal,
a second later or more, ends the process at once.")]
    Run {
        #[command(flatten)]
        worker: WorkerSettings,
        #[cfg(feature = "dashboard")]
        #[command(flatten)]
        dashboard: DashboardSettings,
    },
    /// Serve pages and a JSON API to look at the store and to act on it, until SIGTERM or SIGINT
    #[cfg(feature = "dashboard")]
    #[command(after_long_help = "\
Examples:
  queue-worker dashboard                            on http://127.0.0.1:7070, for this machine only
  QUEUE_DASHBOARD_TOKEN=.. queue-worker dashboard --addr '[::]:7070' --dashboard-host queue.example.com
  queue-worker run --dashboard 127.0.0.1:7070       beside a worker

Where others can reach it, it wants a token. It has three connections of its own. Browsers ask for it by a name of this machine,
or by one that is said with --dashboard-host.")]
    Dashboard {
        /// Where it listens; default 127.0.0.1:7070
        #[arg(long, value_name = "ADDR", value_parser = super::values::address)]
        addr: Option<std::net::SocketAddr>,
        #[command(flatten)]
        dashboard: DashboardSettings,
    },
    /// Create the tables, or bring them up to date
    #[command(after_long_help = "\
Examples:
  queue-worker migrate                              apply what is missing; safe to repeat, and from several machines at once
  queue-worker migrate print > queue.sql            for whoever applies SQL by other means
  queue-worker migrate status                       what is applied, and when")]
    Migrate {
        #[command(flatten)]
        output: Output,
        #[command(subcommand)]
        step: Option<Step>,
    },
    /// Make the roles of a store, or bring what they may do up to date: producer, worker, reader, operator, owner
    #[command(after_long_help = "\
Examples:
  queue-worker roles                                make queue_producer and the others; then: grant queue_producer to web
  queue-worker roles --print > roles.sql            for whoever applies SQL by other means
  queue-worker roles --producer mailer --queue mail a role that may enqueue into the queue mail only

Run it again after each migration. It takes a user who may create roles and owns the store.")]
    Roles(RolesArgs),
    /// List the job types that this binary can run, with their options
    Jobs(Output),
    /// Count jobs by queue, type and state; list workers; tell who waits longest
    #[command(after_long_help = "\
It answers at once, however many jobs there are. A number with a + is counted so far and no further: there may be
more, of all jobs that are over even where it says 0+. With --json such a number has \"partial\": true.")]
    Stats {
        /// Show every queue and type, not only the 50 that have most jobs
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        exact: Exact,
        #[command(flatten)]
        output: Output,
    },
    /// Show what came of attempts, how fast jobs were completed, how long handlers ran and how late they began
    #[command(after_long_help = "\
Examples:
  queue-worker history                              the last hour, a row for each queue and type
  queue-worker history --last 1d --by time --queue mail
  queue-worker history --last 7d --by time --step 1h --json

Workers write it every ten seconds. `start` is how long jobs had been ready when their handlers began. Quantiles are right
to the bucket of a histogram: 1, 2, 5, 10 ms and so on. A row `*` is of queues and types that there was no room for by name.")]
    History(HistoryArgs),
    /// List jobs, the newest first
    #[command(after_long_help = "\
Examples:
  queue-worker list --state dead --limit 20
  queue-worker list --queue mail --before 1879032461361152001    the page after this job
  queue-worker list --state dead --json | jq -r '.jobs[].id'")]
    List(List),
    /// Follow jobs as they come and change, a line each, until Ctrl-C; or one job, until it is over
    #[command(after_long_help = "\
Examples:
  queue-worker tail                                 what happens, from the last 10 jobs on
  queue-worker tail --queue mail -n 0
  queue-worker tail 1879032461361152001             one job until it is over
  queue-worker tail --type send_email --json | jq -r 'select(.state == \"dead\").id'

It looks twice a second at the newest 500 jobs and at 500 that run. Where more happens, it shows a part.")]
    Tail(Tail),
    /// Show one job, with why each attempt failed
    #[command(after_long_help = "`queue-worker why ID` says what keeps it from running.")]
    Show {
        /// The job's id
        #[arg(value_parser = id)]
        id: JobId,
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
    #[command(after_long_help = "\
The first line is the answer; then come other causes, why attempts failed, and fixes: commands, SQL or advice. Of a job that is over it
says what came of it. It only reads, waits for nobody, and never shows payloads.

Examples:
  queue-worker why 1879032461361152001
  queue-worker why 1879032461361152001 --json | jq -r '.causes[0].kind'

Exit code 3 if there is no such job, which is answered as well.")]
    Why {
        /// The job's id
        #[arg(value_parser = id)]
        id: JobId,
        #[command(flatten)]
        output: Output,
    },
    /// Follow queues, workers and running jobs on a terminal, anew each second, until `q`
    #[cfg(feature = "top")]
    #[command(after_long_help = "\
Keys: q quits, arrows and page up and down move, tab goes to the next part, s sorts queues by another column.

It only reads, what `stats` and `history` read. While the database is away it says so, shows what it saw last, and goes on.
Exit code 2 where there is no terminal.")]
    Top,
    /// Run a job's handler here, in a transaction that is rolled back, and say how it ended; the job stays as it is
    #[command(after_long_help = try_one::MANUAL)]
    Try(TryArgs),
    /// Look at the store and its server, and say what is wrong, what follows from it, and what cures it
    #[command(after_long_help = "\
Examples:
  queue-worker doctor
  queue-worker doctor --strict --ignore superuser_worker      in a script: warnings are failures too
  queue-worker doctor --json | jq -r '.findings[] | select(.can_be_pasted).fix'

It only reads. What is locked, slow or forbidden is a finding too, and holds up nothing else. docs/DOCTOR.md has all findings.

Exit codes: 0 nothing is broken, 1 with --strict if there are warnings, 2 something is broken (or wrong usage)")]
    Doctor(DoctorArgs),
    #[command(flatten)]
    Act(ActCommand<JobId>),
    /// Many stores: which there are, where tenants are, and all that is asked of one or done to it, asked of all
    #[command(after_long_help = stores::MANUAL)]
    Stores(StoresArgs),
    /// Show the jobs of a flow and what they wait for, or cancel them
    #[command(after_long_help = flow::MANUAL)]
    Flow(FlowArgs),
    /// Send a signal to a durable job, which goes on if it waits for it
    #[command(after_long_help = signal::MANUAL)]
    Signal(SignalArgs),
    /// Write jobs as JSON lines, the newest first, with why each attempt failed
    #[command(after_long_help = "\
Examples:
  queue-worker export --state dead --since 1d > dead.jsonl
  queue-worker export --state dead --type send_email --payload | jq -r .payload.to

It takes no more memory for many jobs than for few.")]
    Export(Export),
    /// Let workers begin nothing of a queue, a job type or everything; running jobs go on to their ends
    #[command(after_long_help = "\
Examples:
  queue-worker pause --queue mail --reason 'the mail server is moving'
  queue-worker pause --type send_invoice --wait     return once no worker begins any of it
  queue-worker pause --all --wait && ./deploy       nothing new begins; see what still runs with `list --state running`

It lasts until `resume`, over restarts of workers and servers. What waits stays ready, and what was claimed and not begun goes
back uncharged. `pauses` shows what is paused. Ctrl-C ends the wait, not the pause.")]
    Pause(PauseArgs),
    /// End the pause of a queue, a job type or everything
    #[command(after_long_help = "\
Examples:
  queue-worker resume --queue mail
  queue-worker resume --all                         ends `pause --all`; a queue that was paused by itself stays so")]
    Resume(Which),
    /// Show what is paused: since when, by whom, why, how many ready jobs wait for it, and how many workers are to stop
    Pauses(Output),
    /// Schedules: jobs that the clock enqueues
    #[command(after_long_help = "\
Examples:
  queue-worker cron list                            the schedules, each with its next tick
  queue-worker cron add ping --type ping --every 15m
  queue-worker cron pause ping                      no ticks until `cron resume ping`, whatever is deployed
  queue-worker cron next --cron '30 4 * * MON-FRI' --tz Europe/Berlin     what an expression means")]
    Cron {
        #[command(subcommand)]
        command: CronCommand,
    },
    /// Show how many jobs may run at once or begin in a time, and for how many there is room; set that for all workers
    #[command(after_long_help = "\
Examples:
  queue-worker limits                               what is in force, who said so, what is used, what waits
  queue-worker limits set stripe --concurrency 3 --rate 30/1m --burst 5
  queue-worker limits set type:send_email --concurrency 0 --reason 'until Monday'
  queue-worker limits set queue:render --concurrency none --rate none   no limit, whatever code says
  queue-worker limits unset stripe                  code's word holds again
  queue-worker limits keys stripe                   of a limit by key: which keys hold permits, and which wait
  queue-worker limits set stripe --key acme --concurrency 10      of that key, whatever the limit says of each
  queue-worker limits set stripe --key acme --concurrency none    what the limit says of each key

What is set here wins over code, and stays until it is unset, whatever is deployed. It takes effect at once; what runs goes on.")]
    Limits {
        #[command(subcommand)]
        command: Option<LimitsCommand>,
        #[command(flatten)]
        output: Output,
    },
    /// Show how many jobs may wait in a queue and how many do; give it a capacity
    #[command(after_long_help = "\
Examples:
  queue-worker capacity                             the queues that have a capacity
  queue-worker capacity mail 10000                  an enqueue is refused while 10,000 jobs wait
  queue-worker capacity mail none                   no capacity any more

A number with a + is counted so far and no further: there may be more.")]
    Capacity {
        /// This queue only
        queue: Option<String>,
        /// How many jobs may wait in it, or `none`
        #[arg(value_name = "N|none", value_parser = new_capacity)]
        capacity: Option<NewCapacity>,
        #[command(flatten)]
        exact: Exact,
        #[command(flatten)]
        output: Output,
    },
    /// Show which fair keys have more turns than others; give one a weight
    #[command(after_long_help = "\
Examples:
  queue-worker weight                               the fair keys that have a weight
  queue-worker weight render acme 3                 jobs of `acme` have three turns for one of any other
  queue-worker weight render acme none              as many as any other")]
    Weight {
        /// Of jobs stored under this type only
        #[arg(value_name = "TYPE")]
        job_type: Option<String>,
        /// This fair key only
        key: Option<String>,
        /// How many turns its jobs have for one of any other, from 1 to 1000, or `none`
        #[arg(value_name = "N|none", value_parser = new_weight)]
        weight: Option<NewWeight>,
        #[command(flatten)]
        output: Output,
    },
    #[command(flatten)]
    Help(HelpCommand),
}

impl Command {
    /// Whether it runs jobs.
    pub(super) fn runs(&self) -> bool {
        matches!(self, Self::Run { .. }) || matches!(self, Self::Stores(args) if args.runs())
    }
}

#[derive(clap::Args)]
pub(super) struct RolesArgs {
    /// Print the SQL; needs no database
    #[arg(long)]
    pub(super) print: bool,
    /// What the names of the roles begin with; default the schema
    #[arg(long, value_name = "NAME", conflicts_with = "producer")]
    pub(super) prefix: Option<String>,
    /// Make this role instead: a producer for some queues only
    #[arg(long, value_name = "ROLE", requires = "queues")]
    pub(super) producer: Option<String>,
    /// A queue into which that producer may enqueue; may be repeated
    #[arg(long = "queue", id = "queues", value_name = "QUEUE", requires = "producer")]
    pub(super) queues: Vec<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Clone, Copy, Subcommand)]
pub(super) enum Step {
    /// Apply what is missing (the default)
    Run,
    /// Print the SQL of a fresh store; needs no database
    Print,
    /// Tell which migrations are applied
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
