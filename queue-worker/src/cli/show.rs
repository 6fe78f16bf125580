//! `show`: one job with its history.

use std::{collections::HashSet, time::Duration};

use chrono::Utc;
use humantime::format_duration;
use queue_core::{
    Error, JobId, JobRef, JobState, Progress, Store,
    operate::{self, AttemptLog, JobChild, JobGather, JobRecord, JobSignal, JobStep, LimitWait, Pause, WorkerRecord},
    runner::percent,
};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgPool;

use super::{
    list::{Served, of_version, paused_by},
    named::JobName,
    open::open_to_look,
    pause::told,
    print,
    problem::Problem,
    settings::Settings,
};
use crate::{inert, program};

pub(super) async fn show(settings: &Settings, id: JobId, with: (bool, bool), as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_to_look(settings).await?;
    let detail = JobDetail::read(database.pool(), store, id, with).await?;
    database.close().await;
    if as_json { print::json(&detail.document()) } else { print::lines(&detail.text(&id)) }
}

/// A job with its history.
pub(super) struct JobDetail {
    job: JobRecord,
    unserved: HashSet<JobId>,
    pauses: Vec<Pause>,
    limits: Vec<LimitWait>,
    logs: Option<Vec<AttemptLog>>,
    steps: Vec<JobStep>,
    signals: Vec<JobSignal>,
    children: Vec<JobChild>,
    gathers: Vec<JobGather>,
    /// Which has it, if it runs.
    worker: Option<WorkerRecord>,
}

impl JobDetail {
    /// With its payload and its output, and with what it has logged, if that is wanted.
    pub(super) async fn read(pool: &PgPool, store: Store, id: JobId, (payload, logs): (bool, bool)) -> Result<Self, Error> {
        let job = JobRef::from_id(id).in_store(store);
        let job = if payload { job.find(pool).await? } else { job.find_without_payload(pool).await? };
        let limits = if job.state == JobState::Ready { operate::waits_for(pool, store, id).await? } else { Vec::new() };
        let workers = if job.worker.is_some() { operate::workers(pool, store).await? } else { Vec::new() };
        Ok(Self {
            worker: workers.into_iter().find(|worker| Some(worker.id) == job.worker),
            unserved: operate::unserved_of(pool, store, std::slice::from_ref(&job)).await?,
            pauses: operate::pauses(pool, store).await?,
            limits,
            logs: if logs { Some(operate::logs(pool, store, id).await?) } else { None },
            steps: operate::steps(pool, store, id).await?,
            signals: operate::signals(pool, store, id).await?,
            children: operate::children(pool, store, id).await?,
            gathers: operate::gathers(pool, store, id).await?,
            job,
        })
    }

    /// As `--json` shows it.
    pub(super) fn document(&self) -> impl Serialize {
        Shown {
            job: Served::new(&self.job, &self.pauses, &self.unserved),
            waits_for: &self.limits,
            steps: &self.steps,
            signals: &self.signals,
            children: &self.children,
            gathers: &self.gathers,
            held_by: self.worker.as_ref(),
            logs: self.logs.as_deref(),
        }
    }

    /// For people, to whom the job goes by this name.
    pub(super) fn text(&self, name: &impl JobName) -> String {
        describe(self, name)
            + &stepped(&self.steps)
            + &signalled(&self.signals)
            + &with_children(&self.children)
            + &gathered(&self.gathers)
            + &self.logs.as_deref().map_or_else(String::new, logged)
    }
}

/// A job in JSON, the limits that have no room for it, and, if it is durable, what it has done so far, and what it was sent and has not received.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    job: Served<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    waits_for: &'a [LimitWait],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steps: &'a [JobStep],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    signals: &'a [JobSignal],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    children: &'a [JobChild],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    gathers: &'a [JobGather],
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<&'a WorkerRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<&'a [AttemptLog]>,
}

/// `permit stripe/42: 3 of 3`, or `rate stripe/42: next 2026-11-23 12:00:05Z`.
fn waits(limit: &LimitWait) -> String {
    let key = match &limit.key {
        _ if !limit.keyed => String::new(),
        Some(key) => format!("/{key}"),
        None if limit.line == 0 => "/(no key)".to_owned(),
        None => format!("/line {}", limit.line),
    };
    let name = format!("{}{key}", limit.name);
    match (limit.next_ms, limit.concurrency) {
        _ if limit.awaits > 0 => format!("limit {name}: once {} workers know it", limit.awaits),
        (Some(ms), _) => format!("rate {name}: next {}", print::time(Utc::now() + Duration::from_millis(ms.max(0.0).ceil() as u64))),
        (None, Some(most)) => format!("permit {name}: {} of {most}", limit.used),
        (None, None) => format!("permit {name}: {}", limit.used),
    }
}

fn describe<I: JobName>(JobDetail { job, pauses, limits, unserved, worker, .. }: &JobDetail, name: &I) -> String {
    let (paused, waits_for_nobody) = (paused_by(job, pauses), unserved.contains(&job.id));
    let mut said = Vec::new();
    let mut say = |name: &str, value: &str| said.push(format!("{name:<10} {}", value.trim_end().replace('\n', "\n           ")));
    say("job", &name.to_string());
    say("type", &of_version(&job.job_type, job.version));
    say("queue", &format!("{}, priority {}", job.queue, job.priority));
    say("state", &if job.cancelling { format!("{}, cancelling", job.state) } else { job.state.to_string() });
    if let Some(pause) = paused {
        say("waits", &told(pause));
    }
    for limit in limits {
        say("waits", &inert::short(&waits(limit), 200));
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
    if let Some(id) = job.worker {
        let gone = || format!("{id}, which is gone");
        say("worker", &worker.as_ref().map_or_else(gone, |worker| format!("{} ({}:{}), {id}", worker.name, worker.host, worker.pid)));
    }
    if let Some(meta) = &job.meta {
        say("meta", &inert::json(meta.get()));
    }
    if let Some(system) = &job.system {
        say("system", &inert::json(system.get()));
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
    if matches!(job.state, JobState::Ready | JobState::Scheduled | JobState::Blocked | JobState::Parked) {
        said.push(format!("{:<10} {}{name}", "see", program::commands(&I::examples("queue-worker why "))));
    }
    said.join("\n")
}

/// What a durable job has done so far, below the rest: a line a step.
fn stepped(steps: &[JobStep]) -> String {
    let of = |step: &JobStep| {
        let said = match step.until {
            Some(until) if step.is_timed_out() => format!("timed out at {}", print::time(until)),
            Some(until) if step.waits_for().is_some() => format!("waits for a signal until {}", print::time(until)),
            Some(until) => format!("sleeps until {}", print::time(until)),
            None => format!("after {}", format_duration(Duration::from_millis(u64::from(step.ran_ms.unsigned_abs())))),
        };
        format!(
            "\nstep       {}, {}: attempt {}, {said}",
            print::time(step.at),
            inert::line(step.waits_for().unwrap_or(&step.name)),
            step.attempt
        )
    };
    steps.iter().map(of).collect()
}

/// What it has spawned: a line each.
fn with_children(children: &[JobChild]) -> String {
    let of = |child: &JobChild| format!("\nchild      {}, {}: {}", inert::line(&child.name), child.id, child.whereabouts());
    children.iter().map(of).collect()
}

/// What it has mapped.
fn gathered(gathers: &[JobGather]) -> String {
    let of = |gather: &JobGather| {
        let JobGather { name, total, need, completed, dead, cancelled, most, .. } = gather;
        let total = total.map_or_else(|| "more to come".to_owned(), |total| format!("of {total}"));
        let most = most.map_or_else(String::new, |most| format!(", {most} at once"));
        format!(
            "\nmapped     {}, {total}: {completed} completed, {dead} dead, {cancelled} cancelled, {need} not over{most}",
            inert::line(name)
        )
    };
    gathers.iter().map(of).collect()
}

/// What a durable job was sent and has not received: a line each.
fn signalled(signals: &[JobSignal]) -> String {
    let of = |signal: &JobSignal| format!("\nsignal     {}, {}: not received yet", print::time(signal.at), inert::line(&signal.name));
    signals.iter().map(of).collect()
}

/// What each attempt has logged, below the rest.
fn logged(logs: &[AttemptLog]) -> String {
    if logs.is_empty() {
        return "\nlogged     nothing that is kept".to_owned();
    }
    let of = |log: &AttemptLog| {
        let text = inert::lines(log.text.trim_end()).replace('\n', "\n           ");
        format!("\nlogged     {}, attempt {}:\n           {text}", print::time(log.at), log.attempt)
    };
    logs.iter().map(of).collect()
}

/// Percent, stage and counts, as far as they were said, and when.
fn how_far(progress: &Progress) -> String {
    let percent = progress.fraction.map(|fraction| format!("{}%", percent(fraction)));
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
