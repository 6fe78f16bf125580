//! `try` command: runs a job's handler in a transaction that is rolled back, and reports the result. The job itself is not changed.

use std::process::ExitCode;

use humantime::format_duration;
use queue_core::{
    JobId, JobRef, JobState,
    runner::{SettlePath, percent},
};
use serde_json::{Value, json};

use super::{
    open::open_store,
    print,
    problem::{BoxError, Problem, warn},
    settings::Settings,
    span::Span,
    values::{OutputArgs, id},
};
use crate::{
    escape,
    live::shutdown_signal,
    worker::{
        Worker,
        trial::{Rollback, TrialOptions, TrialResult},
    },
};

/// Arguments of `try`.
#[derive(clap::Args)]
pub(super) struct TryArgs {
    /// Job id
    #[arg(value_parser = id)]
    id: JobId,
    /// Permit writes through `cx.pool()`; these are not rolled back. Required for handlers that are not transactional
    #[arg(long)]
    yes: bool,
    /// Maximum run time of the handler, regardless of its job type's timeout
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    within: Span,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

pub(super) const MANUAL: &str = "\
It loads the job and runs its handler, with its middleware and state, in a transaction that cannot be committed and is rolled back. No attempt
is counted, no lease is taken, the job is not changed, and a worker may claim it meanwhile. A running job is refused.

Changes through the handler's transaction (`cx.transaction()`, `cx.begin()`, jobs enqueued on it) are rolled back. If the handler ends it
itself and continues in another, changes there may be kept; the result reports that. Other effects are NOT rolled back:
HTTP, mail, files, other databases, sequences. Without --yes, `cx.pool()` only reads; with it, changes through the pool are
kept. A handler that is not transactional needs --yes. The login needs the privilege to create temporary tables in the database.

Examples:
  queue-worker try 1879032461361152001
  queue-worker try 1879032461361152001 --yes --json | jq -r .error

Exit codes: 0 the job would complete, 3 the job does not exist or is running, or this binary has no handler for it, 4 it did not complete";

/// Exit code if the handler ran but its job would not complete.
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
        return Err(Problem::refused(format!("job {} is running on a worker; wait until it finishes, or cancel it", job.id)));
    }
    let worker = prepare(Worker::new(database.pool().clone()).config(config)).await?;
    let Some(known) = worker.find_type(&job.job_type)? else {
        let text = format!("no handler for job type `{}` in this binary; run `try` with the binary that has one", job.job_type);
        return Err(Problem::refused(text));
    };
    let (name, registration) = (known.0, &known.1);
    if job.version.unsigned_abs() > registration.options().version {
        let known = registration.options().version;
        let text = format!("the payload of job {} is of version {}, and this binary knows {known}; run a newer one", job.id, job.version);
        return Err(Problem::refused(text));
    }
    if !registration.options().transactional && !args.yes {
        let text = format!("the handler of `{name}` is not transactional, so its effects are not rolled back; pass `--yes` to permit that");
        return Err(Problem::usage(text));
    }
    let trial = TrialOptions { limit: args.within.0, may_write: args.yes };
    let result = worker.try_one(&job, &known, trial, shutdown_signal()).await?;
    let now = of.find_without_payload(database.pool()).await.ok();
    if now.as_ref().is_none_or(|now| (now.state, now.attempts) != (job.state, job.attempts)) {
        warn(&format!("job {} has changed meanwhile: it was claimed, or changed by an operator", job.id));
    }
    tokio::time::timeout(std::time::Duration::from_secs(2), database.close()).await.unwrap_or_default();
    if args.output.json {
        print::json(&document(job.id, name, job.state, &result))?;
    } else {
        print::lines(&describe(job.id, name, job.state, &result))?;
    }
    let completes = result.ending.as_ref().is_ok_and(queue_core::runner::Ending::is_complete);
    Ok(if completes { ExitCode::SUCCESS } else { ExitCode::from(NOT_COMPLETED) })
}

/// Returns the name of the verdict with which a worker would settle the job.
fn verdict(result: &TrialResult) -> &'static str {
    // A completion has the same name whether or not a worker would keep a record of the job.
    match &result.ending {
        Ok(ending) if ending.is_complete() => "complete",
        Ok(ending) if ending.path() == SettlePath::Park => "park",
        Ok(ending) if ending.path() == SettlePath::Restart => "restart",
        Ok(ending) => ending.verdict_name(),
        Err(_) => "unknown",
    }
}

fn error(result: &TrialResult) -> Option<&str> {
    match &result.ending {
        Ok(ending) => ending.error(),
        Err(why) => Some(why),
    }
}

/// Returns the JSON document for `--json`. Omits the job's output, because the output may be confidential.
fn document(id: JobId, name: &str, state: JobState, result: &TrialResult) -> Value {
    let progress = result.progress.as_ref().map(|progress| {
        let counts: Value = serde_json::from_str(&progress.counts).unwrap_or_default();
        json!({ "fraction": progress.fraction, "stage": progress.stage, "counts": counts })
    });
    json!({
        "job": id,
        "job_type": name,
        "state": state,
        "verdict": verdict(result),
        "error": error(result),
        "ran_ms": result.ran.as_millis() as u64,
        "progress": progress,
        "rolled_back": is_rolled_back(&result.rollback),
    })
}

/// Returns whether all writes of the handler's transaction were rolled back, or `None` if that is unknown.
fn is_rolled_back(rollback: &Rollback) -> Option<bool> {
    match rollback {
        Rollback::Done => Some(true),
        Rollback::EndedByHandler => Some(false),
        // The handler may have committed its transaction and started another before the session was lost.
        Rollback::Lost | Rollback::Unknown(_) => None,
    }
}

fn describe(id: JobId, name: &str, state: JobState, result: &TrialResult) -> String {
    let ran = format_duration(std::time::Duration::from_millis(result.ran.as_millis() as u64));
    let mut lines = vec![format!("job {id} of type {name}: {} after {ran}", verdict(result))];
    if let Some(error) = error(result) {
        lines.push(format!("  {}", escape::line(error)));
    }
    if let Some(ending) = result.ending.as_ref().ok().filter(|ending| ending.path() == SettlePath::Park) {
        let signals: Vec<String> = ending.signals().iter().map(|name| escape::line(name)).collect();
        lines.push(format!("  it waits for {}; a trial receives no signal", signals.join(", ")));
    }
    if let Some(progress) = &result.progress {
        let fraction = progress.fraction.map_or_else(String::new, |fraction| format!(" {}%", percent(fraction)));
        let stage = progress.stage.as_ref().map_or_else(String::new, |stage| format!(" {}", escape::line(stage)));
        let counts = if progress.counts == "{}" { String::new() } else { format!(" {}", escape::line(&progress.counts)) };
        lines.push(format!("  it reported{fraction}{stage}{counts}"));
    }
    lines.push(match &result.rollback {
        Rollback::Done => format!("rolled back; the job is {state} as before"),
        Rollback::EndedByHandler => "the handler ended its transaction itself: its later changes may be kept".to_owned(),
        Rollback::Lost => {
            "the session of its transaction was lost: the server rolled back uncommitted changes; if the handler had ended its transaction \
                            itself before, its later changes may be kept"
                .to_owned()
        }
        Rollback::Unknown(why) => format!("unknown whether its transaction was rolled back: {}", escape::line(why)),
    });
    lines.join("\n")
}
