//! `cancel`, `reschedule`, `snooze`, `run-now`, `priority`: each job by itself, so that one that is refused does not hold up the others; or
//! all of a kind, in batches.

use std::process::ExitCode;

use queue_core::JobId;
use serde::Serialize;
use serde_json::json;

use super::{
    args::Waiting,
    open_store, print,
    problem::{Problem, REFUSED},
    settings::Settings,
};
use crate::{
    error::Error,
    observe::{self, Control, Controlled},
};

/// A job that was left as it is, as `--json` shows it.
#[derive(Serialize)]
pub(super) struct Refused {
    id: JobId,
    reason: String,
}

impl Refused {
    pub(super) fn all(refused: &[(JobId, Error)]) -> Vec<Self> {
        refused.iter().map(|(id, error)| Self { id: *id, reason: error.to_string() }).collect()
    }
}

/// Says of each job why it was refused, and what the command's exit code is then.
pub(super) fn told(refused: Vec<(JobId, Error)>) -> ExitCode {
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
    for (_, error) in refused {
        Problem::from(error).report();
    }
    code
}

/// What was done, in a word.
fn done(control: Control) -> &'static str {
    match control {
        Control::Cancel => "cancelled",
        Control::Reschedule(_) => "rescheduled",
        Control::Snooze(_) => "snoozed",
        Control::RunNow => "ready",
        Control::Priority(_) => "changed",
    }
}

/// Does it to the jobs named, or to all of a kind.
pub(super) async fn control(settings: &Settings, control: Control, waiting: &Waiting) -> Result<ExitCode, Problem> {
    waiting.check()?;
    if waiting.chosen.all { all(settings, control, waiting).await } else { each(settings, control, waiting).await }
}

async fn all(settings: &Settings, control: Control, waiting: &Waiting) -> Result<ExitCode, Problem> {
    let (store, filter, as_json) = (settings.store()?, waiting.filter(), waiting.chosen.output.json);
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let said = if waiting.chosen.dry_run {
        let jobs = observe::count_waiting(&mut connection, store, &filter, control).await?;
        if as_json { json!({ "found": jobs }).to_string() } else { format!("{jobs} jobs would be {}", done(control)) }
    } else {
        let swept = observe::control_all(&mut connection, store, &filter, control).await?;
        let asked = if swept.asked > 0 { format!(", asked {} running ones to end", swept.asked) } else { String::new() };
        match (as_json, control) {
            (true, Control::Cancel) => json!({ done(control): swept.done, "asked": swept.asked }).to_string(),
            (true, _) => json!({ done(control): swept.done }).to_string(),
            (false, _) => format!("{} {} jobs{asked}", done(control), swept.done),
        }
    };
    drop(connection);
    database.close().await;
    print::lines(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// On each of the jobs. A failure of the database ends it; a refusal is said at the end.
async fn each(settings: &Settings, control: Control, waiting: &Waiting) -> Result<ExitCode, Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let (mut changed, mut asked, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for &id in &waiting.chosen.ids {
        match observe::control(&mut connection, store, id, control).await {
            Ok(Controlled::Done) => changed.push(id),
            Ok(Controlled::Asked) => asked.push(id),
            Err(error @ (Error::NotFound(_) | Error::WrongState { .. } | Error::Held { .. })) => refused.push((id, error)),
            Err(error) => return Err(error.into()),
        }
    }
    drop(connection);
    database.close().await;
    if waiting.chosen.output.json {
        let refused = Refused::all(&refused);
        match control {
            Control::Cancel => print::json(&json!({ done(control): changed, "asked": asked, "refused": refused }))?,
            _ => print::json(&json!({ done(control): changed, "refused": refused }))?,
        }
    } else {
        let changed = changed.iter().map(|id| format!("{} {id}", done(control)));
        let lines: Vec<String> = changed.chain(asked.iter().map(|id| format!("asked {id} to end"))).collect();
        if !lines.is_empty() {
            print::lines(&lines.join("\n"))?;
        }
    }
    Ok(told(refused))
}
