//! What is done to jobs: each job by itself, so that one that is refused does not hold up the others; or all of a kind, in batches.

use std::{
    io::{BufRead, IsTerminal as _, Write as _, stderr, stdin},
    process::ExitCode,
};

use chrono::{DateTime, Utc};
use clap::Subcommand;
use queue_core::{
    Error, JobId, JobRef, Store,
    operate::{self, Act, Acted},
};
use serde::Serialize;
use serde_json::json;

use super::{
    chosen::Chosen,
    known_queue::check_queue,
    noted::{Noted, note},
    open::open_store,
    print,
    problem::{Problem, REFUSED},
    settings::{Settings, Span},
    values::{counted, rate, time},
};
use crate::live::{Database, shutdown_signal};

#[derive(Subcommand)]
pub(super) enum ActCommand {
    /// Make dead, completed, cancelled or expired jobs ready again, with all their attempts before them
    #[command(after_long_help = "\
Examples:
  queue-worker requeue 1879032461361152001 1879032461361152002
  queue-worker requeue --all --type send_email      every dead letter of this type; completed, cancelled and expired jobs stay
  queue-worker requeue --all --error timeout --rate 50/s --yes            no more than 50 a second; a signal ends it in order")]
    Requeue {
        #[command(flatten)]
        chosen: Chosen,
        /// With --all: so many a second at most, as 50/s or 10/m
        #[arg(long, value_name = "RATE", value_parser = rate)]
        rate: Option<f64>,
    },
    /// Cancel jobs that are ready, scheduled, blocked, parked or running; handlers that run are told to stop, and dropped if they do not
    #[command(after_long_help = "\
Examples:
  queue-worker cancel 1879032461361152001
  queue-worker cancel --all --queue mail --state scheduled --dry-run      how many that would be

A running job completes if its handler does so all the same; it is never tried again. One of a transactional type cannot be cancelled
while it runs.")]
    Cancel(Chosen),
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
        chosen: Chosen,
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
        chosen: Chosen,
    },
    /// Make jobs ready that are scheduled, retries too, or parked
    #[command(after_long_help = "\
Examples:
  queue-worker run-now 1879032461361152001
  queue-worker run-now --all --error 'connection refused'                 every retry that waits since that")]
    RunNow(Chosen),
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
        chosen: Chosen,
    },
    /// Delete dead letters with their payloads and history, for good
    #[command(after_long_help = "\
Examples:
  queue-worker discard 1879032461361152001
  queue-worker discard --all --queue mail --dry-run how many dead letters of this queue there are
  queue-worker discard --all --queue mail --yes     delete them")]
    Discard(Chosen),
}

/// An act on the jobs chosen.
struct Asked {
    act: Act,
    chosen: Chosen,
    rate: Option<f64>,
}

impl ActCommand {
    fn asked(self) -> Result<Asked, Problem> {
        let (act, chosen, rate) = match self {
            Self::Requeue { chosen, rate } => (Act::Requeue, chosen, rate),
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

/// Does it to the jobs named, or to all of a kind.
pub(super) async fn act(settings: &Settings, command: ActCommand) -> Result<ExitCode, Problem> {
    let asked = command.asked()?;
    let (database, store) = open_store(settings).await?;
    let code = if asked.chosen.all {
        all(&database, store, &asked).await.map(|()| ExitCode::SUCCESS)?
    } else {
        each(&database, store, &asked).await?
    };
    database.close().await;
    Ok(code)
}

/// A signal ends it after the batch that is on its way.
async fn all(database: &Database, store: Store, Asked { act, chosen, rate }: &Asked) -> Result<(), Problem> {
    let (pool, filter, as_json) = (database.pool(), chosen.filter(), chosen.output.json);
    check_queue(database, store, filter.queue.as_deref()).await?;
    if chosen.dry_run {
        let most = if chosen.exact { u64::MAX } else { COUNTED };
        let jobs = operate::count_matching_up_to(pool, store, &filter, *act, most).await?;
        return if as_json {
            print::json(&json!({ "found": jobs.min(most), "partial": jobs > most }))
        } else {
            print::lines(&would(*act, jobs, most))
        };
    }
    if matches!(act, Act::Requeue | Act::Cancel | Act::Discard) && !chosen.yes {
        let jobs = operate::count_matching_up_to(pool, store, &filter, *act, COUNTED).await?;
        if jobs > 0 {
            confirm(&would(*act, jobs, COUNTED), &mut stdin().lock(), stdin().is_terminal())?;
        }
    }
    let noted = note(act.done(), chosen.text());
    let acting = operate::act_all(pool, store, &filter, *act).noted(noted).until(shutdown_signal());
    let swept = if let Some(rate) = rate { acting.rate(*rate).await? } else { acting.await? };
    if as_json {
        return print::json(&json!({ act.done(): swept.done, "cancelling": swept.cancelling }));
    }
    let running = if swept.cancelling > 0 { format!(", cancelling {} that run", swept.cancelling) } else { String::new() };
    print::lines(&format!("{} {} jobs{running}", act.done(), swept.done))
}

/// Jobs are counted so far before it is said what would be done, unless all are to be counted.
const COUNTED: u64 = 10_000;

fn would(act: Act, jobs: u64, most: u64) -> String {
    format!("{} jobs would be {}", counted(jobs.min(most), jobs > most), act.done())
}

/// Asks whoever sits there; from a script it must be said.
fn confirm(what: &str, answers: &mut impl BufRead, is_terminal: bool) -> Result<(), Problem> {
    if !is_terminal {
        return Err(Problem::usage(format!("{what}, and nobody can be asked here; say `--yes`, or `--dry-run` to see how many")));
    }
    // With stderr closed there is nobody to ask, and no answer is no.
    let _ = write!(stderr(), "{what}. Go on? [y/N] ");
    let mut answer = String::new();
    answers.read_line(&mut answer).map_err(Problem::failed)?;
    if ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) { Ok(()) } else { Err(Problem::failed("nothing was done")) }
}

/// A job that was left as it is, as `--json` shows it.
#[derive(Serialize)]
struct Refused {
    id: JobId,
    reason: String,
}

/// On each of the jobs. A failure of the database ends it; a refusal is said at the end.
async fn each(database: &Database, store: Store, Asked { act, chosen, .. }: &Asked) -> Result<ExitCode, Problem> {
    let (mut done, mut cancelling, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for &id in &chosen.ids {
        let mut noted = Noted::begin(database.pool(), store).await?;
        match JobRef::from_id(id).in_store(store).act(&mut *noted, *act).await {
            Ok(acted) => {
                noted.commit(act.done(), format!("job {id}"), 1).await?;
                if acted == Acted::Cancelling { &mut cancelling } else { &mut done }.push(id);
            }
            Err(error @ (Error::NotFound { .. } | Error::WrongState { .. } | Error::Locked { .. })) => refused.push((id, error)),
            Err(error) => return Err(error.into()),
        }
    }
    if chosen.output.json {
        let refused: Vec<Refused> = refused.iter().map(|(id, error)| Refused { id: *id, reason: error.to_string() }).collect();
        print::json(&json!({ act.done(): done, "cancelling": cancelling, "refused": refused }))?;
    } else {
        let done = done.iter().map(|id| format!("{} {id}", act.done()));
        let lines: Vec<String> = done.chain(cancelling.iter().map(|id| format!("cancelling {id}"))).collect();
        if !lines.is_empty() {
            print::lines(&lines.join("\n"))?;
        }
    }
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
    for (_, error) in refused {
        Problem::from(error).report();
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &str) -> bool {
        confirm("7 jobs would be cancelled", &mut answer.as_bytes(), true).is_ok()
    }

    #[test]
    fn only_yes_is_yes_and_a_script_must_say_it() {
        assert!(["y\n", "Yes\n", " YES "].into_iter().all(answered));
        assert!(!["", "\n", "n\n", "yesterday\n", "\u{1b}y\n"].into_iter().any(answered));
        let refused = confirm("7 jobs would be cancelled", &mut "y\n".as_bytes(), false).unwrap_err();
        assert!(refused.to_string().contains("7 jobs"), "{refused}");
    }
}
