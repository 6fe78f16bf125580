//! `why` command: explains why a job is not running, or how it ended.

use std::process::ExitCode;

use queue_core::{
    JobId,
    operate::{Cause, CauseKind, Why},
};

use super::{
    job_name::JobName,
    list::versioned_type,
    open::open_for_reading,
    print,
    problem::{Problem, REFUSED},
    settings::Settings,
};
use crate::{escape, program::name_commands};

pub(super) async fn why(settings: &Settings, id: JobId, as_json: bool) -> Result<ExitCode, Problem> {
    let (database, store) = open_for_reading(settings).await?;
    let why = name_commands(database.queue().store(store).job(id).why().await?);
    database.close().await;
    if as_json {
        print::json(&why)?;
    } else {
        print::lines(&describe(&why, &id))?;
    }
    Ok(if why.is_absent() { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

/// Formats an explanation: main cause, job attributes, other causes, failed attempts and fixes.
pub(super) fn describe(why: &Why, name: &impl JobName) -> String {
    let mut lines = vec![escape::line(&why.first().message)];
    if let (Some(state), Some(queue), Some(job_type)) = (why.state, &why.queue, &why.job_type) {
        let of = versioned_type(job_type, why.version.unwrap_or(1));
        lines.push(escape::line(&format!("  job {name}: {of}, queue {queue}, priority {}, {state}", why.priority.unwrap_or(0))));
    }
    lines.extend(why.causes[1..].iter().map(|cause| format!("also: {}", escape::line(&cause.message))));
    for cause in &why.causes {
        lines.extend(failures(cause));
    }
    lines.extend(why.causes.iter().filter_map(|cause| {
        let what = if cause.kind == CauseKind::OldSnapshot { "if it is not needed" } else { "fix" };
        cause.fix.as_ref().map(|fix| format!("{what}: {}", escape::line(fix)))
    }));
    lines.join("\n")
}

/// Formats the failed attempts listed in the facts of a cause.
fn failures(cause: &Cause) -> Vec<String> {
    let failures = cause.facts.get("failures").and_then(|failures| failures.as_array());
    let texts = failures.into_iter().flatten().map(|failure| {
        let text = |name: &str| failure[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| failure[name].as_i64().unwrap_or_default();
        format!(
            "  attempt {} failed at {} after {}ms: {}",
            number("attempt"),
            text("at"),
            number("ran_ms"),
            escape::short(&text("error"), 200)
        )
    });
    texts.collect()
}
