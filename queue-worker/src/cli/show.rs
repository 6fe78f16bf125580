//! `show`: one job with its history.

use humantime::format_duration;
use queue_core::{
    JobId, JobRef, JobState, Progress,
    operate::{self, JobRecord, Pause},
};
use serde_json::value::RawValue;

use super::{
    inert,
    list::{Served, of_version, paused_by, waits_for_nobody},
    open::open_store,
    pause::told,
    print,
    problem::Problem,
    settings::Settings,
};

pub(super) async fn show(settings: &Settings, id: JobId, payload: bool, as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_store(settings).await?;
    let job = JobRef::from_id(id).in_store(store);
    let job = if payload { job.find(database.pool()).await? } else { job.find_without_payload(database.pool()).await? };
    let unserved = operate::unserved(database.pool(), store).await?;
    let pauses = operate::pauses(database.pool(), store).await?;
    database.close().await;
    if as_json {
        return print::json(&Served::new(&job, &pauses, &unserved));
    }
    print::lines(&describe(&job, paused_by(&job, &pauses), waits_for_nobody(&job, &unserved)))
}

fn describe(job: &JobRecord, paused: Option<&Pause>, waits_for_nobody: bool) -> String {
    let mut said = Vec::new();
    let mut say = |name: &str, value: &str| said.push(format!("{name:<10} {}", value.trim_end().replace('\n', "\n           ")));
    say("job", &job.id.to_string());
    say("type", &of_version(&job.job_type, job.version));
    say("queue", &format!("{}, priority {}", job.queue, job.priority));
    say("state", &if job.cancelling { format!("{}, cancelling", job.state) } else { job.state.to_string() });
    if let Some(pause) = paused {
        say("waits", &told(pause));
    }
    if waits_for_nobody {
        let version = if job.version > 1 { " in this version" } else { "" };
        say("worker", &format!("none that lives serves this queue and type{version}"));
    }
    let crashes = if job.crashes > 0 { format!("; the process ended during {} of them", job.crashes) } else { String::new() };
    say("attempts", &format!("{} of {}{crashes}", job.attempts, job.max_attempts));
    say("enqueued", &print::time(job.enqueued_at));
    if let Some(run_at) = job.run_at {
        say("due", &print::time(run_at));
    }
    if let Some(finished_at) = job.finished_at {
        say(if job.state == JobState::Dead { "died" } else { "finished" }, &print::time(finished_at));
    }
    if let Some(ran) = job.ran.filter(|_| job.state == JobState::Completed) {
        say("ran", &format_duration(ran).to_string());
    }
    if let Some(worker) = job.worker {
        say("worker", &worker.to_string());
    }
    if let Some(meta) = &job.meta {
        say("meta", &inert::json(meta.get()));
    }
    if let Some(progress) = &job.progress {
        say("progress", &how_far(progress));
    }
    if let Some(payload) = &job.payload {
        say("payload", &pretty(payload));
    }
    if let Some(output) = &job.output {
        say("output", &pretty(output));
    }
    if let (Some(error), []) = (&job.error, job.failures.as_slice()) {
        say("error", error);
    }
    for failure in &job.failures {
        let heading = format!("{}, attempt {} after {}:", print::time(failure.at), failure.attempt, format_duration(failure.ran));
        say("failed", &format!("{heading}\n{}", failure.error));
    }
    said.join("\n")
}

/// Percent, stage and counts, as far as they were said, and when.
fn how_far(progress: &Progress) -> String {
    let percent = progress.fraction.map(|fraction| format!("{:.0}%", fraction * 100.0));
    let counts = progress.counts.iter().map(|(name, count)| format!("{name} {count}"));
    let when = progress.updated_at.map(|at| format!("attempt {}, {}", progress.attempt, print::time(at)));
    let parts: Vec<String> = percent.into_iter().chain(progress.stage.clone()).chain(counts).chain(when).collect();
    parts.join("; ")
}

/// The JSON over several lines; as it is when it is nested too deeply for that.
fn pretty(json: &RawValue) -> String {
    let indented = serde_json::from_str::<serde_json::Value>(json.get()).and_then(|value| serde_json::to_string_pretty(&value));
    inert::json(&indented.unwrap_or_else(|_| json.get().to_owned()))
}
