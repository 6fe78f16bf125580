//! Arguments of the operations on jobs. The doc comments of the arguments are their help texts.

use chrono::{DateTime, Utc};
use clap::Subcommand;
use queue_core::operate::Operation;

use super::{
    job_name::JobName,
    problem::Problem,
    selection::JobSelection,
    span::Span,
    values::{priority, rate, time},
};

#[derive(Subcommand)]
pub(super) enum ActCommand<I: JobName> {
    /// Make dead letters ready again with all their attempts; by id also completed, cancelled and expired jobs
    #[command(after_long_help = I::examples(REQUEUE))]
    Requeue {
        #[command(flatten)]
        chosen: JobSelection<I>,
        /// With --all: maximum number of jobs per second or minute, such as 50/s or 10/m
        #[arg(long, value_name = "RATE", value_parser = rate)]
        rate: Option<f64>,
        /// Requeue even if another job holds the uniqueness key; without this option the requeue is rejected, or with --all the job is skipped
        #[arg(long)]
        force: bool,
    },
    /// Cancel jobs that are ready, scheduled, blocked, parked or running; a running handler is requested to stop, and dropped if it does
    /// not stop
    #[command(after_long_help = I::examples(CANCEL))]
    Cancel(JobSelection<I>),
    /// Set the due time of ready or scheduled jobs to a later or earlier time
    #[command(after_long_help = I::examples(RESCHEDULE))]
    Reschedule {
        /// Due time, such as 2026-12-24T18:00:00Z; a time in the past means now
        #[arg(long, value_name = "TIME", value_parser = time)]
        at: DateTime<Utc>,
        #[command(flatten)]
        chosen: JobSelection<I>,
    },
    /// Make ready or scheduled jobs due after a delay from now
    #[command(after_long_help = I::examples(SNOOZE))]
    Snooze {
        /// Delay from now by the database's clock, at most 100 years (36500d)
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
        by: Span,
        #[command(flatten)]
        chosen: JobSelection<I>,
    },
    /// Make scheduled jobs (including retries) and parked jobs ready
    #[command(after_long_help = I::examples(RUN_NOW))]
    RunNow(JobSelection<I>),
    /// Change the priority of ready or scheduled jobs
    #[command(after_long_help = I::examples(PRIORITY))]
    Priority {
        /// Priority from -32768 to 32767; higher priorities run first
        #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
        to: i16,
        #[command(flatten)]
        chosen: JobSelection<I>,
    },
    /// Delete dead letters permanently, with their payloads and history
    #[command(after_long_help = I::examples(DISCARD))]
    Discard(JobSelection<I>),
}

/// Operation and the jobs it applies to.
pub(super) struct ActRequest<I: JobName> {
    pub(super) act: Operation,
    pub(super) chosen: JobSelection<I>,
    pub(super) rate: Option<f64>,
}

impl<I: JobName> ActCommand<I> {
    pub(super) fn into_request(self) -> Result<ActRequest<I>, Problem> {
        let (act, chosen, rate) = match self {
            Self::Requeue { chosen, rate, force } => (if force { Operation::ForceRequeue } else { Operation::Requeue }, chosen, rate),
            Self::Cancel(chosen) => (Operation::Cancel, chosen, None),
            Self::Reschedule { at, chosen } => (Operation::Reschedule(at), chosen, None),
            Self::Snooze { by, chosen } => (Operation::Snooze(by.0), chosen, None),
            Self::RunNow(chosen) => (Operation::RunNow, chosen, None),
            Self::Priority { to, chosen } => (Operation::Priority(to), chosen, None),
            Self::Discard(chosen) => (Operation::Discard, chosen, None),
        };
        chosen.check(rate.is_some())?;
        Ok(ActRequest { act, chosen, rate })
    }
}

const REQUEUE: &str = "\
Examples:
  queue-worker requeue 1879032461361152001 1879032461361152002
  queue-worker requeue --all --type send_email      every dead letter of this type; other finished jobs stay
  queue-worker requeue --all --error timeout --rate 50/s --yes            at most 50 per second; a signal stops it after the current batch";

const CANCEL: &str = "\
Examples:
  queue-worker cancel 1879032461361152001
  queue-worker cancel --all --queue mail --state scheduled --dry-run      only count the jobs

A running job completes if its handler completes nevertheless. It is not retried.";

const RESCHEDULE: &str = "\
Examples:
  queue-worker reschedule 1879032461361152001 --at 2026-12-24T18:00:00Z
  queue-worker reschedule --all --type send_report --at 2026-12-24T18:00:00+01:00";

const SNOOZE: &str = "\
Examples:
  queue-worker snooze 1879032461361152001 --by 1h
  queue-worker snooze --all --queue mail --error 'connection refused' --by 30m";

const RUN_NOW: &str = "\
Examples:
  queue-worker run-now 1879032461361152001
  queue-worker run-now --all --error 'connection refused'                 every retry after such an error";

const PRIORITY: &str = "\
Examples:
  queue-worker priority 1879032461361152001 --to 150
  queue-worker priority --all --queue mail --older-than 1h --to 150";

const DISCARD: &str = "\
Examples:
  queue-worker discard 1879032461361152001
  queue-worker discard --all --queue mail --dry-run count the dead letters of this queue
  queue-worker discard --all --queue mail --yes     delete them";
