//! One job: what it is, how far it is, why its attempts failed, and what can be done to it.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use chrono::{DateTime, Utc};
use queue_core::{
    JobId, JobState, Progress,
    operate::{self, AttemptLog, Cause, CauseKind, FlowNode, JobChild, JobGather, JobRecord, JobSignal, JobStep, Why, WorkerRecord},
    runner::percent,
    schedule::Tick,
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    frame::{Frame, page as write},
    graph::{DRAWN, Graph, graph},
    timeline::{Timeline, timeline},
    tree::tree,
};
use crate::{
    dashboard::{
        api::{Button, buttons, is_node, job_id, logs_of, looked_at, parent_of},
        app::{App, Shared},
        part::Path,
        problem::{Answer, Problem},
        show::{self, Moment},
    },
    program::name_commands,
};

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    job: JobView,
    /// Trees of JSON, each with its name.
    trees: Vec<(&'static str, String)>,
    logs: Vec<LogView>,
    steps: Vec<StepRow>,
    timeline: Option<Timeline>,
    /// The flow that it is a node of.
    flow: Option<Graph>,
    children: Vec<ChildRow>,
    gathers: Vec<GatherRow>,
    signals: Vec<SignalRow>,
    /// Whether it can be sent signals here, and the one that it waits for.
    signal: Option<String>,
    /// Why they cannot be read.
    unread: Option<String>,
    hidden: bool,
    /// Whether it changes by itself.
    goes_on: bool,
}

/// What changes by itself.
#[derive(Template)]
#[template(path = "job_live.html")]
struct JobLive<'a> {
    frame: &'a Frame,
    job: JobView,
}

struct JobView {
    id: String,
    job_type: String,
    state: &'static str,
    cancelling: bool,
    facts: Vec<Fact>,
    /// Why it is not running, or what came of it.
    causes: Vec<CauseRow>,
    progress: Option<ProgressView>,
    failures: Vec<FailureRow>,
    error: Option<String>,
    buttons: Vec<&'static Button>,
    /// Whether it can be put off, and its priority changed.
    waits: bool,
    priority: i16,
}

/// A job as it is looked at.
pub(super) struct JobSeen {
    job: JobRecord,
    why: Why,
    /// Which has it, if it runs.
    worker: Option<WorkerRecord>,
    now: DateTime<Utc>,
}

/// A name and a value; a moment, or a link.
struct Fact {
    name: &'static str,
    value: String,
    moment: Option<Moment>,
    link: Option<String>,
}

struct ProgressView {
    percent: Option<u32>,
    text: String,
}

/// One cause, and what to do about it.
struct CauseRow {
    says: String,
    fix: Option<String>,
}

impl CauseRow {
    fn new(cause: &Cause) -> Self {
        Self { says: show::line(&cause.says), fix: cause.fix.as_deref().map(show::line) }
    }
}

/// A step of a durable job.
struct StepRow {
    name: String,
    attempt: i16,
    at: Moment,
    /// How long it took, unless it is a sleep.
    ran: String,
    until: Option<Moment>,
    /// What it does until then.
    until_says: &'static str,
}

/// What it has spawned.
struct ChildRow {
    name: String,
    id: JobId,
    state: String,
}

/// What it has mapped: how many are not counted as over, and how many came to what.
struct GatherRow {
    name: String,
    /// Of how many; not known while more are spawned.
    total: String,
    need: i64,
    completed: i64,
    dead: i64,
    cancelled: i64,
    /// How many may run at once.
    most: String,
}

/// What a durable job has, beside what it has done.
#[derive(Default)]
struct Read {
    steps: Vec<JobStep>,
    flow: Vec<FlowNode>,
    children: Vec<JobChild>,
    gathers: Vec<JobGather>,
    signals: Vec<JobSignal>,
    logs: Vec<AttemptLog>,
}

/// What it was sent and has not received.
struct SignalRow {
    name: String,
    at: Moment,
}

impl StepRow {
    fn new(step: &JobStep, now: DateTime<Utc>) -> Self {
        let ran = show::span(Duration::from_millis(u64::from(step.ran_ms.unsigned_abs())));
        let until = step.until.map(|until| Moment::new(until, now));
        let (name, at) = (show::line(step.waits_for().unwrap_or(&step.name)), Moment::new(step.at, now));
        let until_says = match step.waits_for() {
            _ if step.is_timed_out() => "timed out at",
            Some(_) => "waits for a signal until",
            None => "sleeps until",
        };
        Self { name, attempt: step.attempt, at, ran, until, until_says }
    }
}

impl GatherRow {
    fn new(gather: &JobGather) -> Self {
        let JobGather { name, total, need, completed, dead, cancelled, most, .. } = gather;
        let total = total.map_or_else(|| "more to come".to_owned(), |total| total.to_string());
        let most = most.map_or_else(|| "all".to_owned(), |most| most.to_string());
        Self { name: show::line(name), total, need: *need, completed: *completed, dead: *dead, cancelled: *cancelled, most }
    }
}

impl LogView {
    fn new(log: &AttemptLog, now: DateTime<Utc>) -> Self {
        Self { attempt: log.attempt, at: Moment::new(log.at, now), cut: log.cut, text: show::lines(&log.text) }
    }
}

struct FailureRow {
    attempt: i16,
    at: Moment,
    ran: String,
    error: String,
}

/// What an attempt has logged.
struct LogView {
    attempt: i16,
    at: Moment,
    cut: i64,
    text: String,
}

/// A job of which nothing can be shown but why.
#[derive(Template)]
#[template(path = "job_unseen.html")]
struct UnseenPage {
    frame: Frame,
    id: JobId,
    text: String,
    causes: Vec<CauseRow>,
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame, Path(id): Path<String>) -> Answer<Response> {
    let id = job_id(&id)?;
    let seen = match see(&app, id).await {
        Ok(seen) => seen,
        Err(problem) => return unseen(&app, frame, id, problem).await,
    };
    // What cannot be read of the logs and the steps keeps nobody from seeing the job.
    let (read, unread) = match read(&app, &seen.job).await {
        Ok(read) => (read, None),
        Err(problem) => (Read::default(), Some(problem.text)),
    };
    let logs = read.logs.iter().rev().map(|log| LogView::new(log, seen.now)).collect();
    let steps = read.steps.iter().map(|step| StepRow::new(step, seen.now)).collect();
    let (timeline, flow) = (timeline(&read.steps, seen.now), (!read.flow.is_empty()).then(|| graph(&read.flow, &id.to_string())));
    let child = |child: &JobChild| ChildRow { name: show::line(&child.name), id: child.id, state: child.whereabouts().to_owned() };
    let children = read.children.iter().map(child).collect();
    let gathers = read.gathers.iter().map(GatherRow::new).collect();
    let signals = read.signals.iter().map(|one| SignalRow { name: show::line(&one.name), at: Moment::new(one.at, seen.now) }).collect();
    let JobRecord { payload, output, meta, state, .. } = &seen.job;
    let json = [("payload", payload), ("output", output), ("metadata", meta)];
    let trees = json.into_iter().filter_map(|(name, json)| Some((name, tree(json.as_ref()?.get())))).collect();
    let goes_on = !matches!(state, JobState::Completed | JobState::Dead | JobState::Cancelled | JobState::Expired);
    let hidden = app.door.options.hide_payloads;
    let is_durable = *state == JobState::Parked || !(read.steps.is_empty() && read.signals.is_empty());
    let signal = (frame.acts && goes_on && is_durable).then(|| awaited(&seen.why).unwrap_or_default().to_owned());
    let job = view(&frame, &seen);
    Ok(write(&JobPage { frame, job, trees, logs, steps, timeline, flow, children, gathers, signals, signal, unread, hidden, goes_on })?
        .into_response())
}

async fn read(app: &App, job: &JobRecord) -> Answer<Read> {
    let (mut session, id) = (app.look().await?, job.id);
    Ok(Read {
        steps: operate::steps(&mut *session, app.store, id).await?,
        children: operate::children(&mut *session, app.store, id).await?,
        gathers: operate::gathers(&mut *session, app.store, id).await?,
        signals: operate::signals(&mut *session, app.store, id).await?,
        logs: logs_of(&mut session, app, id, &job.job_type).await?,
        // Last, for it may be large.
        flow: if is_node(job) { operate::first_nodes(&mut *session, app.store, id, DRAWN + 1).await? } else { Vec::new() },
    })
}

/// The first signal that it waits for, which is not the end of a child.
fn awaited(why: &Why) -> Option<&str> {
    let facts = &why.causes.iter().find(|cause| cause.kind == CauseKind::Parked)?.facts;
    let children = facts.get("children").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut signals = facts.get("signals")?.as_array()?.iter().filter_map(Value::as_str);
    signals.find(|name| children.iter().all(|child| child["wait"] != **name))
}

/// A job that is not there, or a table that somebody has to himself: what keeps it from being seen is what is asked.
async fn unseen(app: &App, frame: Frame, id: JobId, problem: Problem) -> Answer<Response> {
    let Ok(mut session) = app.look().await else { return Err(problem) };
    let Ok(why) = operate::why(&mut *session, app.store, id).await else { return Err(problem) };
    let causes = name_commands(why).causes.iter().map(CauseRow::new).collect();
    let Problem { status, text, .. } = problem;
    Ok((status, write(&UnseenPage { frame, id, text, causes })?).into_response())
}

/// Looks at a job.
pub(super) async fn see(app: &App, id: JobId) -> Answer<JobSeen> {
    let mut session = app.look().await?;
    let now = operate::now(&mut *session, app.store).await?;
    let job = looked_at(&mut session, app, id).await?;
    let why = name_commands(operate::why(&mut *session, app.store, id).await?);
    let workers = if job.worker.is_some() { operate::workers(&mut *session, app.store).await? } else { Vec::new() };
    let worker = workers.into_iter().find(|worker| Some(worker.id) == job.worker);
    Ok(JobSeen { job, why, worker, now })
}

impl JobSeen {
    /// What changes of the page.
    pub(super) fn live(&self, frame: &Frame) -> Option<String> {
        JobLive { frame, job: view(frame, self) }.render().ok()
    }
}

fn view(frame: &Frame, JobSeen { job, why, worker, now }: &JobSeen) -> JobView {
    let failure = |failure: &operate::AttemptFailure| FailureRow {
        attempt: failure.attempt,
        at: Moment::new(failure.at, *now),
        ran: show::span(failure.ran),
        error: show::lines(&failure.error),
    };
    JobView {
        id: job.id.to_string(),
        job_type: show::line(&job.job_type),
        state: job.state.name(),
        cancelling: job.cancelling,
        facts: facts(frame, job, worker.as_ref(), *now),
        causes: why.causes.iter().map(CauseRow::new).collect(),
        progress: job.progress.as_ref().map(how_far),
        failures: job.failures.iter().rev().map(failure).collect(),
        error: job.error.as_deref().filter(|_| job.failures.is_empty()).map(show::lines),
        // Of what is cancelling nothing more can be wanted.
        buttons: if job.cancelling { Vec::new() } else { buttons(job.state) },
        waits: matches!(job.state, JobState::Scheduled | JobState::Ready),
        priority: job.priority,
    }
}

fn facts(frame: &Frame, job: &JobRecord, worker: Option<&WorkerRecord>, now: DateTime<Utc>) -> Vec<Fact> {
    let plain = |name, value: String| Fact { name, value: show::line(&value), moment: None, link: None };
    let moment = |name, at| Fact { name, value: String::new(), moment: Some(Moment::new(at, now)), link: None };
    let list = |key: &str, value: &str| format!("{}/jobs?q={key}:{}", frame.base, show::in_address(value));
    let version = if job.version > 1 { format!(" v{}", job.version) } else { String::new() };
    let mut facts = vec![
        Fact { link: Some(list("type", &job.job_type)), ..plain("type", job.job_type.clone() + &version) },
        Fact { link: Some(list("queue", &job.queue)), ..plain("queue", job.queue.clone()) },
        plain("priority", job.priority.to_string()),
    ];
    let crashes = if job.crashes > 0 { format!("; the process ended during {}", job.crashes) } else { String::new() };
    facts.push(plain("attempts", format!("{} of {}{crashes}", job.attempts, job.max_attempts)));
    let parent = |id: JobId| Fact { link: Some(format!("{}/jobs/{id}", frame.base)), ..plain("parent", id.to_string()) };
    facts.extend(parent_of(job).map(parent));
    facts.push(moment("enqueued", job.enqueued_at));
    facts.extend(job.run_at.map(|at| moment("due", at)));
    facts.extend(job.expires_at().map(|at| moment("expires", at)));
    if let Some(Tick { schedule, at, .. }) = job.tick() {
        facts.extend([plain("schedule", schedule), moment("tick", at)]);
    }
    facts.extend(job.finished_at.map(|at| moment(if job.state == JobState::Dead { "died" } else { "over" }, at)));
    facts.extend(job.ran.map(|ran| plain("ran", show::span(ran))));
    let named = |id: Uuid| {
        worker.map_or_else(|| format!("{id}, which is gone"), |worker| format!("{} ({}:{})", worker.name, worker.host, worker.pid))
    };
    facts.extend(job.worker.map(|id| plain("worker", named(id))));
    facts
}

fn how_far(progress: &Progress) -> ProgressView {
    let counts = progress.counts.iter().map(|(name, count)| format!("{name} {count}"));
    let text: Vec<String> = progress.stage.iter().cloned().chain(counts).collect();
    let percent = progress.fraction.map(percent);
    ProgressView { percent, text: show::line(&text.join("; ")) }
}
