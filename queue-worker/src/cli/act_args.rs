//! What can be done to jobs, as it is said on the command line. The texts here are the manual.

use chrono::{DateTime, Utc};
use clap::Subcommand;
use queue_core::operate::Act;

use super::{
    chosen::Chosen,
    named::JobName,
    problem::Problem,
    span::Span,
    values::{priority, rate, time},
};

#[derive(Subcommand)]
pub(super) enum ActCommand<I: JobName> {
    /// Make jobs ready again, with all their attempts before them: with --all dead letters, by ids also completed, cancelled and expired jobs
    #[command(after_long_help = I::examples(REQUEUE))]
    Requeue {
        #[command(flatten)]
        chosen: Chosen<I>,
        /// With --all: so many a second at most, as 50/s or 10/m
        #[arg(long, value_name = "RATE", value_parser = rate)]
        rate: Option<f64>,
        /// Also beside a job that has taken the uniqueness key meanwhile; without it such a job is refused, or with --all left as it is
        #[arg(long)]
        force: bool,
    },
    /// Cancel jobs that are ready, scheduled, blocked, parked or running; handlers that run are told to stop, and dropped if they do not
    #[command(after_long_help = I::examples(CANCEL))]
    Cancel(Chosen<I>),
    /// Put off jobs that are ready or scheduled until a time, or let them be due earlier
    #[command(after_long_help = I::examples(RESCHEDULE))]
    Reschedule {
        /// When they are due, as 2026-12-24T18:00:00Z; a time that has passed is now
        #[arg(long, value_name = "TIME", value_parser = time)]
        at: DateTime<Utc>,
        #[command(flatten)]
        chosen: Chosen<I>,
    },
    /// Put off jobs that are ready or scheduled for some time from now
    #[command(after_long_help = I::examples(SNOOZE))]
    Snooze {
        /// How long from now, by the database's clock: at most 100 years (36500d)
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
        by: Span,
        #[command(flatten)]
        chosen: Chosen<I>,
    },
    /// Make jobs ready that are scheduled, retries too, or parked
    #[command(after_long_help = I::examples(RUN_NOW))]
    RunNow(Chosen<I>),
    /// Give jobs that are ready or scheduled another priority
    #[command(after_long_help = I::examples(PRIORITY))]
    Priority {
        /// The priority, -32768 to 32767; higher runs first
        #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
        to: i16,
        #[command(flatten)]
        chosen: Chosen<I>,
    },
    /// Delete dead letters with their payloads and history, for good
    #[command(after_long_help = I::examples(DISCARD))]
    Discard(Chosen<I>),
}

/// An act on the jobs chosen.
pub(super) struct Asked<I: JobName> {
    pub(super) act: Act,
    pub(super) chosen: Chosen<I>,
    pub(super) rate: Option<f64>,
}

impl<I: JobName> ActCommand<I> {
    pub(super) fn asked(self) -> Result<Asked<I>, Problem> {
        let (act, chosen, rate) = match self {
            Self::Requeue { chosen, rate, force } => (if force { Act::ForceRequeue } else { Act::Requeue }, chosen, rate),
            Self::Cancel(chosen) => (Act::Cancel, chosen, None),
            Self::Reschedule { at, chosen } => (Act::Reschedule(at), chosen, None),
            Self::Snooze { by, chosen } => (Act::Snooze(by.0), chosen, None),
            Self::RunNow(chosen) => (Act::RunNow, chosen, None),
            Self::Priority { to, chosen } => (Act::Priority(to), chosen, None),
            Self::Discard(chosen) => (Act::Discard, chosen, None),
        };
        chosen.check(rate.is_some())?;
        Ok(Asked { act, chosen, rate })
    }
}

const REQUEUE: &str = "\
Examples:
  queue-worker requeue 1879032461361152001 1879032461361152002
  queue-worker requeue --all --type send_email      every dead letter of this type; completed, cancelled and expired jobs stay
  queue-worker requeue --all --error timeout --rate 50/s --yes            no more than 50 a second; a signal ends it in order";

const CANCEL: &str = "\
Examples:
  queue-worker cancel 1879032461361152001
  queue-worker cancel --all --queue mail --state scheduled --dry-run      how many that would be

A running job completes if its handler does so all the same; it is never tried again.";

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
  queue-worker run-now --all --error 'connection refused'                 every retry that waits since that";

const PRIORITY: &str = "\
Examples:
  queue-worker priority 1879032461361152001 --to 150
  queue-worker priority --all --queue mail --older-than 1h --to 150";

const DISCARD: &str = "\
Examples:
  queue-worker discard 1879032461361152001
  queue-worker discard --all --queue mail --dry-run how many dead letters of this queue there are
  queue-worker discard --all --queue mail --yes     delete them";
