//! `show` command: shows one job with its history.

use std::{collections::HashSet, time::Duration};

use chrono::Utc;
use humantime::format_duration;
use queue_core::{
    Error, JobId, JobState, Queue, Store,
    operate::{AttemptLog, JobChild, JobGather, JobRecord, JobSignal, JobStep, LimitWait, Pause, WorkerRecord},
    runner::percent,
    wait::Progress,
};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::PgPool;

use super::{
    job_name::JobName,
    list::{ListedJob, blocking_pause, versioned_type},
    open::open_for_reading,
    pause::describe_pause,
    print,
    problem::Problem,
    settings::Settings,
};
use crate::{escape, program};

pub(super) async fn show(settings: &Settings, id: JobId, with: (bool, bool), as_json: bool) -> Result<(), Problem> {
    let (database, store) = open_for_reading(settings).await?;
    let detail = JobDetail::read(database.pool(), store, id, with).await?;
    database.close().await;
    if as_json { print::json(&detail.document()) } else { print::lines(&detail.text(&id)) }
}

/// Job with the related records that `show` prints, such as pauses, limits and steps.
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
    /// Worker that is running the job, or `None` if no registered worker is running it.
    worker: Option<WorkerRecord>,
}

impl JobDetail {
    /// Loads a job. With `payload`, also loads the job's payload and output. With `logs`, also loads the logs of its attempts.
    pub(super) async fn read(pool: &PgPool, store: Store, id: JobId, (payload, logs): (bool, bool)) -> Result<Self, Error> {
        let queue = Queue::new(pool).store(store);
        let on_job = queue.job(id);
        let job = if payload { on_job.find().await? } else { on_job.find_without_payload().await? };
        let limits = if job.state == JobState::Ready { on_job.limit_waits().await? } else { Vec::new() };
        let workers = if job.worker.is_some() { queue.workers().await? } else { Vec::new() };
        Ok(Self {
            worker: workers.into_iter().find(|worker| Some(worker.id) == job.worker),
            unserved: queue.unserved_of(std::slice::from_ref(&job)).await?,
            pauses: queue.pauses().await?,
            limits,
            logs: if logs { Some(on_job.logs().await?) } else { None },
            steps: on_job.steps().await?,
            signals: on_job.signals().await?,
            children: on_job.children().await?,
            gathers: on_job.gathers().await?,
            job,
        })
    }

    /// Returns the JSON document for `--json`.
    pub(super) fn document(&self) -> impl Serialize {
        JobDocument {
            job: ListedJob::new(&self.job, &self.pauses, &self.unserved),
            waits_for: &self.limits,
            steps: &self.steps,
            signals: &self.signals,
            children: &self.children,
            gathers: &self.gathers,
            held_by: self.worker.as_ref(),
            logs: self.logs.as_deref(),
        }
    }

    /// Formats the job as text for a terminal, titled with `name`.
    pub(super) fn text(&self, name: &impl JobName) -> String {
        describe(self, name)
            + &format_steps(&self.steps)
            + &format_signals(&self.signals)
            + &format_children(&self.children)
            + &format_maps(&self.gathers)
            + &self.logs.as_deref().map_or_else(String::new, format_logs)
    }
}

/// Job in the `--json` output, with the limits that it is waiting for, the worker that is running it, and the requested logs. For a durable
/// job, also includes steps, children, map batches, and signals that the job has not received yet.
#[derive(Serialize)]
struct JobDocument<'a> {
    #[serde(flatten)]
    job: ListedJob<'a>,
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

/// Formats a limit that a job is waiting for, such as `permit stripe/42: 3 of 3` or `rate stripe/42: next 2026-11-23 12:00:05Z`.
fn format_limit_wait(limit: &LimitWait) -> String {
    let key = match &limit.key {
        _ if !limit.keyed => String::new(),
        Some(key) => format!("/{key}"),
        None if limit.fair_id == 0 => "/(no key)".to_owned(),
        None => format!("/fair queue {}", limit.fair_id),
    };
    let name = format!("{}{key}", limit.name);
    match (limit.next_ms, limit.concurrency) {
        _ if limit.awaits > 0 => format!("limit {name}: after {} workers acknowledge it", limit.awaits),
        (Some(ms), _) => format!("rate {name}: next {}", print::time(Utc::now() + Duration::from_millis(ms.max(0.0).ceil() as u64))),
        (None, Some(most)) => format!("permit {name}: {} of {most}", limit.used),
        (None, None) => format!("permit {name}: {}", limit.used),
    }
}

fn describe<I: JobName>(JobDetail { job, pauses, limits, unserved, worker, .. }: &JobDetail, name: &I) -> String {
    let (paused, is_unserved) = (blocking_pause(job, pauses), unserved.contains(&job.id));
    let mut lines = Vec::new();
    let mut add = |name: &str, value: &str| lines.push(format!("{name:<10} {}", value.trim_end().replace('\n', "\n           ")));
    add("job", &name.to_string());
    add("type", &versioned_type(&job.job_type, job.version));
    add("queue", &format!("{}, priority {}", job.queue, job.priority));
    add("state", &if job.cancelling { format!("{}, cancelling", job.state) } else { job.state.to_string() });
    if let Some(pause) = paused {
        add("waits", &describe_pause(pause));
    }
    for limit in limits {
        add("waits", &escape::short(&format_limit_wait(limit), 200));
    }
    if is_unserved {
        let version = if job.version > 1 { " in this version" } else { "" };
        add("worker", &format!("no live worker serves this queue and type{version}"));
    }
    let crashes = if job.crashes > 0 { format!("; {} of them ended with their process", job.crashes) } else { String::new() };
    add("attempts", &format!("{} of {}{crashes}", job.attempts, job.max_attempts));
    add("enqueued", &print::time(job.enqueued_at));
    if let Some(run_at) = job.run_at {
        add("due", &print::time(run_at));
    }
    if let Some(finished_at) = job.finished_at {
        add(if job.state == JobState::Dead { "died" } else { "finished" }, &print::time(finished_at));
    }
    if let Some(ran) = job.ran.filter(|_| job.state == JobState::Completed) {
        add("ran", &format_duration(ran).to_string());
    }
    if let Some(id) = job.worker {
        let gone = || format!("{id}, which no longer exists");
        add("worker", &worker.as_ref().map_or_else(gone, |worker| format!("{} ({}:{}), {id}", worker.name, worker.host, worker.pid)));
    }
    if let Some(meta) = &job.meta {
        add("meta", &escape::json(meta.get()));
    }
    if let Some(system) = &job.system {
        add("system", &escape::json(system.get()));
    }
    if let Some(progress) = &job.progress {
        add("progress", &format_progress(progress));
    }
    if let Some(payload) = &job.payload {
        add("payload", &format_json(payload));
    }
    if let Some(output) = &job.output {
        add("output", &format_json(output));
    }
    if let (Some(error), []) = (&job.error, job.failures.as_slice()) {
        add("error", error);
    }
    for failure in &job.failures {
        let heading = format!("{}, attempt {} after {}:", print::time(failure.at), failure.attempt, format_duration(failure.ran));
        add("failed", &format!("{heading}\n{}", failure.error));
    }
    if matches!(job.state, JobState::Ready | JobState::Scheduled | JobState::Blocked | JobState::Parked) {
        lines.push(format!("{:<10} {}{name}", "see", program::commands(&I::examples("queue-worker why "))));
    }
    lines.join("\n")
}

/// Formats the steps of a durable job, one per line.
fn format_steps(steps: &[JobStep]) -> String {
    let of = |step: &JobStep| {
        let ended = match step.until {
            Some(until) if step.is_timed_out() => format!("timed out at {}", print::time(until)),
            Some(until) if step.waits_for().is_some() => format!("waits for a signal until {}", print::time(until)),
            Some(until) => format!("sleeps until {}", print::time(until)),
            None => format!("after {}", format_duration(Duration::from_millis(u64::from(step.ran_ms.unsigned_abs())))),
        };
        format!(
            "\nstep       {}, {}: attempt {}, {ended}",
            print::time(step.at),
            escape::line(step.waits_for().unwrap_or(&step.name)),
            step.attempt
        )
    };
    steps.iter().map(of).collect()
}

/// Formats the children of a job, one per line.
fn format_children(children: &[JobChild]) -> String {
    let of = |child: &JobChild| format!("\nchild      {}, {}: {}", escape::line(&child.name), child.id, child.current_state());
    children.iter().map(of).collect()
}

/// Formats the map batches of a job, one per line.
fn format_maps(gathers: &[JobGather]) -> String {
    let of = |gather: &JobGather| {
        let JobGather { name, total, need, completed, dead, cancelled, most, .. } = gather;
        let total = total.map_or_else(|| "more to come".to_owned(), |total| format!("of {total}"));
        let most = most.map_or_else(String::new, |most| format!(", {most} at once"));
        format!(
            "\nmapped     {}, {total}: {completed} completed, {dead} dead, {cancelled} cancelled, {need} unfinished{most}",
            escape::line(name)
        )
    };
    gathers.iter().map(of).collect()
}

/// Formats the signals that a durable job has not received yet, one per line.
fn format_signals(signals: &[JobSignal]) -> String {
    let of = |signal: &JobSignal| format!("\nsignal     {}, {}: not received yet", print::time(signal.at), escape::line(&signal.name));
    signals.iter().map(of).collect()
}

/// Formats the logs, each below a line with its time and attempt.
fn format_logs(logs: &[AttemptLog]) -> String {
    if logs.is_empty() {
        return "\nlogged     nothing kept".to_owned();
    }
    let of = |log: &AttemptLog| {
        let text = escape::lines(log.text.trim_end()).replace('\n', "\n           ");
        format!("\nlogged     {}, attempt {}:\n           {text}", print::time(log.at), log.attempt)
    };
    logs.iter().map(of).collect()
}

/// Formats the percentage, stage and counts of a progress report, with the attempt and the time of the report.
fn format_progress(progress: &Progress) -> String {
    let percent = progress.fraction.map(|fraction| format!("{}%", percent(fraction)));
    let counts = progress.counts.iter().map(|(name, count)| format!("{name} {count}"));
    let when = progress.updated_at.map(|at| format!("attempt {}, {}", progress.attempt, print::time(at)));
    let parts: Vec<String> = percent.into_iter().chain(progress.stage.clone()).chain(counts).chain(when).collect();
    parts.join("; ")
}

/// Indents a JSON document. Returns the document unchanged if it is nested too deeply.
fn format_json(json: &RawValue) -> String {
    let indented = serde_json::from_str::<serde_json::Value>(json.get()).and_then(|value| serde_json::to_string_pretty(&value));
    escape::json(&indented.unwrap_or_else(|_| json.get().to_owned()))
}
