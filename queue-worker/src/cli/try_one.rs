//! `try`: runs a job's handler here, rolls back, and says how it ended. Nothing of the store changes.

use std::process::ExitCode;

use humantime::format_duration;
use queue_core::{JobId, JobRef, JobState, runner::percent};
use serde_json::{Value, json};

use super::{
    open::open_store,
    print,
    problem::{BoxError, Problem, warn},
    settings::Settings,
    span::Span,
    values::{Output, id},
};
use crate::{
    inert,
    live::shutdown_signal,
    worker::{
        Worker,
        tried::{Rollback, Trial, Tried},
    },
};

/// Which job, and what is allowed.
#[derive(clap::Args)]
pub(super) struct TryArgs {
    /// The job's id
    #[arg(value_parser = id)]
    id: JobId,
    /// Let the handler do what is not rolled back: write through `cx.pool()`. A handler that is not transactional needs this to be tried at all
    #[arg(long)]
    yes: bool,
    /// Give up after this time, whatever the type's timeout is
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    within: Span,
    #[command(flatten)]
    pub(super) output: Output,
}

pub(super) const MANUAL: &str = "\
It reads the job and runs its handler, with its middleware and state, in a transaction that cannot be committed and is rolled back. No attempt
is counted, no lease is taken, the job stays as and where it is, and a worker may claim it meanwhile. A job that runs now is refused.

What goes through the handler's transaction (`cx.transaction()`, `cx.begin()`, jobs enqueued on it) is rolled back; if the handler ends it by hand
and goes on in another, what it wrote there may be kept, and that is said. What goes elsewhere is NOT:
HTTP, mail, files, other databases, numbers that sequences have given out. Without --yes, `cx.pool()` only reads; with it, what is written there
stays. A handler that is not transactional is run with --yes only. The login needs the right to make temporary tables in the database.

Examples:
  queue-worker try 1879032461361152001
  queue-worker try 1879032461361152001 --yes --json | jq -r .error

Exit codes: 0 it would complete, 3 no such job, it runs, or this binary has no handler for it, 4 it did not complete";

/// The handler was run, and did not complete.
const NOT_COMPLETED: u8 = 4;

pub(super) async fn try_one(
    settings: &Settings,
    args: &TryArgs,
    prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>,
) -> Result<ExitCode, Problem> {
    let config = settings.config()?;
    let (database, store) = open_store(settings).await?;
    let of = JobRef::from_id(args.id).in_store(store);
    let job = of.find(database.pool()).await?;
    if job.state == JobState::Running {
        return Err(Problem::refused(format!("job {} runs on a worker now; wait until it has ended, or cancel it", job.id)));
    }
    let worker = prepare(Worker::new(database.pool().clone()).config(config)).await?;
    let Some(known) = worker.known(&job.job_type)? else {
        let text = format!("no handler for job type `{}` in this binary; run the `try` of the one that has it", job.job_type);
        return Err(Problem::refused(text));
    };
    let (name, registration) = (known.0, &known.1);
    if job.version.unsigned_abs() > registration.options().version {
        let known = registration.options().version;
        let text = format!("the payload of job {} is of version {}, and this binary knows {known}; run a newer one", job.id, job.version);
        return Err(Problem::refused(text));
    }
    if !registration.options().transactional && !args.yes {
        let text =
            format!("a handler of `{name}` is not transactional, so what it does outside its transaction is done; say `--yes` if it may");
        return Err(Problem::usage(text));
    }
    let trial = Trial { patience: args.within.0, may_write: args.yes };
    let tried = worker.try_one(&job, &known, trial, shutdown_signal()).await?;
    let now = of.find_without_payload(database.pool()).await.ok();
    if now.as_ref().is_none_or(|now| (now.state, now.attempts) != (job.state, job.attempts)) {
        warn(&format!("job {} has changed meanwhile: somebody else has claimed it or acted on it", job.id));
    }
    tokio::time::timeout(std::time::Duration::from_secs(2), database.close()).await.unwrap_or_default();
    if args.output.json {
        print::json(&document(job.id, name, job.state, &tried))?;
    } else {
        print::lines(&describe(job.id, name, job.state, &tried))?;
    }
    let completes = tried.ending.as_ref().is_ok_and(queue_core::runner::Ending::is_complete);
    Ok(if completes { ExitCode::SUCCESS } else { ExitCode::from(NOT_COMPLETED) })
}

/// What a worker would write, in one word.
fn verdict(tried: &Tried) -> &'static str {
    // Whether a record of it would be kept is another thing.
    match &tried.ending {
        Ok(ending) if ending.is_complete() => "complete",
        Ok(ending) if ending.is_park() => "park",
        Ok(ending) if ending.is_restart() => "restart",
        Ok(ending) => ending.word(),
        Err(_) => "unknown",
    }
}

fn error(tried: &Tried) -> Option<&str> {
    match &tried.ending {
        Ok(ending) => ending.error(),
        Err(why) => Some(why),
    }
}

/// Its output is not shown: it may be as secret as a payload.
fn document(id: JobId, name: &str, state: JobState, tried: &Tried) -> Value {
    let progress = tried.said.as_ref().map(|said| {
        let counts: Value = serde_json::from_str(&said.counts).unwrap_or_default();
        json!({ "fraction": said.fraction, "stage": said.stage, "counts": counts })
    });
    json!({
        "job": id,
        "job_type": name,
        "state": state,
        "verdict": verdict(tried),
        "error": error(tried),
        "ran_ms": tried.ran.as_millis() as u64,
        "progress": progress,
        "rolled_back": is_rolled_back(&tried.rollback),
    })
}

/// Whether all that its transaction has written is gone; `None` if that is not known.
fn is_rolled_back(rollback: &Rollback) -> Option<bool> {
    match rollback {
        Rollback::Done => Some(true),
        Rollback::EndedByHand => Some(false),
        // Before it was lost the handler may have ended its transaction by hand, and written on.
        Rollback::Lost | Rollback::Unknown(_) => None,
    }
}

fn describe(id: JobId, name: &str, state: JobState, tried: &Tried) -> String {
    let ran = format_duration(std::time::Duration::from_millis(tried.ran.as_millis() as u64));
    let mut said = vec![format!("job {id} of type {name}: {} after {ran}", verdict(tried))];
    if let Some(error) = error(tried) {
        said.push(format!("  {}", inert::line(error)));
    }
    if let Some(ending) = tried.ending.as_ref().ok().filter(|ending| ending.is_park()) {
        let signals: Vec<String> = ending.signals().iter().map(|name| inert::line(name)).collect();
        said.push(format!("  it waits for {}; a trial receives no signal", signals.join(", ")));
    }
    if let Some(progress) = &tried.said {
        let fraction = progress.fraction.map_or_else(String::new, |fraction| format!(" {}%", percent(fraction)));
        let stage = progress.stage.as_ref().map_or_else(String::new, |stage| format!(" {}", inert::line(stage)));
        let counts = if progress.counts == "{}" { String::new() } else { format!(" {}", inert::line(&progress.counts)) };
        said.push(format!("  it reported{fraction}{stage}{counts}"));
    }
    said.push(match &tried.rollback {
        Rollback::Done => format!("rolled back; the job is {state} as before"),
        Rollback::EndedByHand => "the handler has ended its transaction by hand: what it wrote after that may be kept".to_owned(),
        Rollback::Lost => "the session of its transaction was lost: the server has rolled back what was not committed; had the handler ended its transaction by \
                            hand before, what it wrote after that may be kept"
            .to_owned(),
        Rollback::Unknown(why) => format!("whether its transaction was rolled back is not known: {}", inert::line(why)),
    });
    said.join("\n")
}
