//! What can be said on the command line. The texts here are the manual.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Parser, Subcommand};
use queue_core::{JobId, JobState};

use super::{
    problem::Problem,
    settings::{Settings, Span, WorkerSettings},
    values::{Bound, bound, id, rate, time},
};
use crate::observe::Filter;

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

/// Heading of the options that every command takes.
pub(super) const EVERYWHERE: &str = "Everywhere";

const MANUAL: &str = "\
Examples:
  queue-worker run                                  run every job type of this binary, on every queue
  queue-worker run --queue mail=20 --queue reports  two queues, 20 handlers at a time for mail
  queue-worker stats                                how many jobs are where, and who works
  queue-worker list --state dead --queue mail       the dead letters of one queue
  queue-worker show 1879032461361152001             one job, with why each attempt failed
  queue-worker requeue --all --type send_email      try every dead send_email again

Settings come from, in this order: option, environment (QUEUE_..., DATABASE_URL), file, default. The file is TOML:
  database_url = \"postgres://app@db.internal/app\"
  schema = \"queue\"
  log = \"info\"
  [worker]
  queues = [\"mail=20\", \"reports\"]
  lease_ttl = \"30s\"
Without a database URL, a private PostgreSQL is started from the binaries on this machine, and stopped when it is not used any more.

Exit codes:
  0  done
  1  failed: the database is away, the store is not migrated, a worker cannot start
  2  wrong usage or configuration
  3  no such job, or it is in a state in which this cannot be done";

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run jobs until SIGTERM or SIGINT
    #[command(after_long_help = "\
Examples:
  queue-worker run --migrate                        bring the schema up to date first
  QUEUE_QUEUES=mail=20,reports queue-worker run     the same options from the environment

A signal stops claiming; handlers may go on for the grace period, the rest goes back uncharged. A second signal ends the process at once.")]
    Run(WorkerSettings),
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
    /// List the job types that this binary can run, with their options
    Jobs(Output),
    /// Count jobs by queue, type and state; list workers; tell who waits longest
    Stats(Output),
    /// List jobs, the newest first
    #[command(after_long_help = "\
Examples:
  queue-worker list --state dead --limit 20
  queue-worker list --queue mail --before 1879032461361152001    the page after this job
  queue-worker list --state dead --json | jq -r '.jobs[].id'")]
    List(List),
    /// Show one job, with why each attempt failed
    Show {
        /// The job's id
        #[arg(value_parser = id)]
        id: JobId,
        /// Show its payload and its output too
        #[arg(long)]
        payload: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Make dead, completed or cancelled jobs ready again, with all their attempts before them
    #[command(after_long_help = "\
Examples:
  queue-worker requeue 1879032461361152001 1879032461361152002
  queue-worker requeue --all --type send_email      every dead letter of this type; completed and cancelled jobs stay
  queue-worker requeue --all --error timeout --rate 50/s                  no more than 50 a second; a signal ends it in order")]
    Requeue {
        #[command(flatten)]
        chosen: Chosen,
        /// With --all: so many a second at most, as 50/s or 10/m
        #[arg(long, value_name = "RATE", value_parser = rate)]
        rate: Option<f64>,
    },
    /// Call off jobs that are ready, scheduled, blocked or running; handlers that run are asked to end, and dropped if they do not
    #[command(after_long_help = "\
Examples:
  queue-worker cancel 1879032461361152001
  queue-worker cancel --all --queue mail --state scheduled --dry-run      how many that would be

A running job completes if its handler does so all the same; it is never tried again. One of a transactional type cannot be cancelled
while it runs.")]
    Cancel(Waiting),
    /// Put off jobs that are ready or scheduled until a time, or let them be due earlier
    #[command(after_long_help = "\
Examples:
  queue-worker reschedule 1879032461361152001 --at 2026-12-24T18:00:00Z
  queue-worker reschedule --all --type send_report --at 2026-12-24T18:00:00+01:00")]
    Reschedule {
        /// When they are due, as 2026-12-24T18:00:00Z; a time that has passed is now
        #[arg(long, value_name = "TIME", value_parser = time)]
        at: DateTime<Utc>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Put off jobs that are ready or scheduled for some time from now
    #[command(after_long_help = "\
Examples:
  queue-worker snooze 1879032461361152001 --by 1h
  queue-worker snooze --all --queue mail --error 'connection refused' --by 30m")]
    Snooze {
        /// How long from now, by the database's clock
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
        by: Span,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Make jobs ready that are scheduled, retries too
    #[command(after_long_help = "\
Examples:
  queue-worker run-now 1879032461361152001
  queue-worker run-now --all --error 'connection refused'                 every retry that waits since that")]
    RunNow(Waiting),
    /// Give jobs that are ready or scheduled another priority
    #[command(after_long_help = "\
Examples:
  queue-worker priority 1879032461361152001 --to 150
  queue-worker priority --all --queue mail --older-than 1h --to 150")]
    Priority {
        /// The priority, -32768 to 32767; higher runs first
        #[arg(long, value_name = "N", allow_hyphen_values = true)]
        to: i16,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Write jobs as JSON lines, the newest first, with why each attempt failed
    #[command(after_long_help = "\
Examples:
  queue-worker export --state dead --since 1d > dead.jsonl
  queue-worker export --state dead --type send_email --payload | jq -r .payload.to

It takes no more memory for many jobs than for few.")]
    Export(Export),
    /// Delete dead letters with their payloads and history, for good
    #[command(after_long_help = "\
Examples:
  queue-worker discard 1879032461361152001
  queue-worker discard --all --queue mail --dry-run how many dead letters of this queue there are
  queue-worker discard --all --queue mail --yes     delete them")]
    Discard {
        #[command(flatten)]
        chosen: Chosen,
        /// With --all: delete them, for good
        #[arg(long)]
        yes: bool,
    },
    /// Show how many jobs may wait in a queue and how many do; bound a queue
    #[command(after_long_help = "\
Examples:
  queue-worker capacity                             the queues that are bounded
  queue-worker capacity mail 10000                  an enqueue is refused while 10,000 jobs wait
  queue-worker capacity mail none                   no bound any more")]
    Capacity {
        /// This queue only
        queue: Option<String>,
        /// How many jobs may wait in it, or `none`
        #[arg(value_name = "N|none", value_parser = bound)]
        capacity: Option<Bound>,
        #[command(flatten)]
        output: Output,
    },
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

#[derive(clap::Args)]
pub(super) struct Output {
    /// Print one JSON document; ids are strings
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(clap::Args)]
pub(super) struct List {
    /// In this state: scheduled, ready, running, completed, dead or cancelled
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: Kind,
    /// At most so many, up to 1000
    #[arg(long, default_value_t = Filter::default().limit, value_name = "N")]
    limit: u32,
    /// Enqueued before this job
    #[arg(long, value_name = "ID", value_parser = id)]
    before: Option<JobId>,
    #[command(flatten)]
    pub(super) output: Output,
}

impl List {
    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: self.limit, before: self.before, ..self.kind.filter() }
    }
}

/// What `export` writes.
#[derive(clap::Args)]
pub(super) struct Export {
    /// In this state: scheduled, ready, running, completed, dead or cancelled
    #[arg(long)]
    state: Option<JobState>,
    #[command(flatten)]
    kind: Kind,
    /// With payloads and outputs
    #[arg(long)]
    payload: bool,
}

impl Export {
    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, limit: Filter::MOST, payload: self.payload, ..self.kind.filter() }
    }
}

/// Jobs by their ids, or all of some kind that wait or run.
#[derive(clap::Args)]
pub(super) struct Waiting {
    #[command(flatten)]
    pub(super) chosen: Chosen,
    /// With --all: in this state only
    #[arg(long)]
    state: Option<JobState>,
}

impl Waiting {
    /// As [`Chosen::check`].
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.chosen.check(self.state.is_some())
    }

    pub(super) fn filter(&self) -> Filter {
        Filter { state: self.state, ..self.chosen.filter() }
    }
}

/// Jobs by their ids, or all of some kind.
#[derive(clap::Args)]
pub(super) struct Chosen {
    /// The jobs' ids
    #[arg(value_name = "ID", value_parser = id, required_unless_present = "all", conflicts_with = "all")]
    pub(super) ids: Vec<JobId>,
    /// All to which it can be done, of the kind that the other options say
    #[arg(long)]
    pub(super) all: bool,
    /// With --all: say how many they are, and do nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    pub(super) output: Output,
}

impl Chosen {
    /// What chooses among all is refused beside ids: it would not be looked at. `more` is what a command has besides.
    pub(super) fn check(&self, more: bool) -> Result<(), Problem> {
        if !self.all && (more || self.dry_run || self.kind.is_said()) {
            return Err(Problem::usage(
                "jobs are named by their ids, and options are given that choose among all; give `--all` instead of ids",
            ));
        }
        Ok(())
    }

    /// Which jobs `--all` means.
    pub(super) fn filter(&self) -> Filter {
        self.kind.filter()
    }
}

#[derive(clap::Args)]
struct Kind {
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this job type
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<String>,
    /// Enqueued not longer ago than this; if it is over: over since then
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    since: Option<Span>,
    /// Enqueued at least so long ago; if it is over: over for so long
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    older_than: Option<Span>,
    /// With this text in its last error; lists and exports: only dead letters
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

impl Kind {
    fn is_said(&self) -> bool {
        let (queue, job_type, error) = (&self.queue, &self.job_type, &self.error);
        [queue, job_type, error].iter().any(|text| text.is_some()) || self.since.is_some() || self.older_than.is_some()
    }

    fn filter(&self) -> Filter {
        Filter {
            queue: self.queue.clone(),
            job_type: self.job_type.clone(),
            since: self.since.map(|span| span.0),
            older_than: self.older_than.map(|span| span.0),
            error: self.error.clone(),
            ..Filter::default()
        }
    }
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
