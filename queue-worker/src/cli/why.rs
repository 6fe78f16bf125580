//! `why`: what keeps a job from running, or what came of it.

use std::process::ExitCode;

use queue_core::{
    JobId,
    operate::{self, Cause, CauseKind, Why},
};

use super::{
    list::of_version,
    named::JobName,
    open::open_to_look,
    print,
    problem::{Problem, REFUSED},
    settings::Settings,
};
use crate::{inert, program::name_commands};

pub(super) async fn why(settings: &Settings, id: JobId, as_json: bool) -> Result<ExitCode, Problem> {
    let (database, store) = open_to_look(settings).await?;
    let why = name_commands(operate::why(database.pool(), store, id).await?);
    database.close().await;
    if as_json {
        print::json(&why)?;
    } else {
        print::lines(&describe(&why, &id))?;
    }
    Ok(if why.is_absent() { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

/// The answer on the first line; then the job, the other causes, the attempts that failed, and what to do.
pub(super) fn describe(why: &Why, name: &impl JobName) -> String {
    let mut said = vec![inert::line(&why.first().says)];
    if let (Some(state), Some(queue), Some(job_type)) = (why.state, &why.queue, &why.job_type) {
        let of = of_version(job_type, why.version.unwrap_or(1));
        said.push(inert::line(&format!("  job {name}: {of}, queue {queue}, priority {}, {state}", why.priority.unwrap_or(0))));
    }
    said.extend(why.causes[1..].iter().map(|cause| format!("also: {}", inert::line(&cause.says))));
    for cause in &why.causes {
        said.extend(failures(cause));
    }
    said.extend(why.causes.iter().filter_map(|cause| {
        let what = if cause.kind == CauseKind::OldSnapshot { "if it is not needed" } else { "fix" };
        cause.fix.as_ref().map(|fix| format!("{what}: {}", inert::line(fix)))
    }));
    said.join("\n")
}

/// Each failed attempt of a job that is over.
fn failures(cause: &Cause) -> Vec<String> {
    let failures = cause.facts.get("failures").and_then(|failures| failures.as_array());
    let told = failures.into_iter().flatten().map(|failure| {
        let text = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| failure[name].as_i64().unwrap_or_default();
        format!(
            "  attempt {} failed at {} after {}ms: {}",
            number("attempt"),
            text("at"),
            number("ran_ms"),
            inert::short(&text("error"), 200)
        )
    });
    told.collect()
}
