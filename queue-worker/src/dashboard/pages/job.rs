//! Job page, with attributes, progress, failed attempts, operations and the causes of the job's state.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use chrono::{DateTime, Utc};
use queue_core::{
    JobId, JobState, Queue,
    operate::{self, AttemptLog, Cause, CauseKind, FlowNode, JobChild, JobGather, JobRecord, JobSignal, JobStep, Why, WorkerRecord},
    runner::percent,
    schedule::Tick,
    wait::Progress,
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    frame::{Frame, render},
    graph::{Graph, MAX_NODES, graph},
    timeline::{Timeline, timeline},
    tree::tree,
};
use crate::{
    dashboard::{
        api::{Button, buttons, is_node, job_id, load_job, load_logs, parent_of},
        app::{App, AppState},
        display::{self, Moment},
        path::Path,
        problem::{HandlerResult, Problem},
    },
    program::name_commands,
};

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    job: JobView,
    /// Titles and HTML trees of the job's JSON documents.
    trees: Vec<(&'static str, String)>,
    logs: Vec<LogView>,
    steps: Vec<StepRow>,
    timeline: Option<Timeline>,
    /// Graph of the flow that contains the job, or `None` if the job is not part of a flow.
    flow: Option<Graph>,
    children: Vec<ChildRow>,
    gathers: Vec<GatherRow>,
    signals: Vec<SignalRow>,
    /// Signal name that is prefilled in the form for sending a signal. Empty if the job is not waiting for a signal. `None` if the page
    /// does not contain the form.
    signal: Option<String>,
    /// Error message if the steps, logs and other related records could not be loaded.
    details_error: Option<String>,
    hidden: bool,
    /// Whether the job is unfinished. Only the page of an unfinished job is updated live.
    is_unfinished: bool,
}

/// Part of the job page that is updated live.
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
    /// Causes that explain why the job is not running, or how it ended.
    causes: Vec<CauseRow>,
    progress: Option<ProgressView>,
    failures: Vec<FailureRow>,
    error: Option<String>,
    buttons: Vec<&'static Button>,
    /// Whether the page offers to postpone the job and to change its priority.
    can_snooze: bool,
    priority: i16,
}

/// Job with its causes and worker, as loaded from the database.
pub(super) struct JobPageData {
    job: JobRecord,
    why: Why,
    /// Worker that is running the job, if any.
    worker: Option<WorkerRecord>,
    now: DateTime<Utc>,
}

/// Labeled attribute of the job. The value is text, a link or a time.
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

/// Cause that explains why the job is not running or how it ended, with its remedy.
struct CauseRow {
    text: String,
    fix: Option<String>,
}

impl CauseRow {
    fn new(cause: &Cause) -> Self {
        Self { text: display::line(&cause.message), fix: cause.fix.as_deref().map(display::line) }
    }
}

/// Table row of a finished step of a durable job, or of a step that is still waiting.
struct StepRow {
    name: String,
    attempt: i16,
    at: Moment,
    /// Run time of the step. Shown only if `until` is `None`.
    ran: String,
    until: Option<Moment>,
    /// Label of the time in `until`.
    until_label: &'static str,
}

/// Table row of a child of the job.
struct ChildRow {
    name: String,
    id: JobId,
    state: String,
}

/// Table row of a map step of the job, with the spawned jobs counted by outcome.
struct GatherRow {
    name: String,
    /// Total number of spawned jobs, or a placeholder while more jobs are being spawned.
    total: String,
    need: i64,
    completed: i64,
    dead: i64,
    cancelled: i64,
    /// Maximum number of spawned jobs that are ready or running at the same time.
    most: String,
}

/// Related records that the job page shows besides the job itself.
#[derive(Default)]
struct JobDetails {
    steps: Vec<JobStep>,
    flow: Vec<FlowNode>,
    children: Vec<JobChild>,
    gathers: Vec<JobGather>,
    signals: Vec<JobSignal>,
    logs: Vec<AttemptLog>,
}

/// Table row of a signal that was sent but not received yet.
struct SignalRow {
    name: String,
    at: Moment,
}

impl StepRow {
    fn new(step: &JobStep, now: DateTime<Utc>) -> Self {
        let ran = display::duration(Duration::from_millis(u64::from(step.ran_ms.unsigned_abs())));
        let until = step.until.map(|until| Moment::new(until, now));
        let (name, at) = (display::line(step.waits_for().unwrap_or(&step.name)), Moment::new(step.at, now));
        let until_label = match step.waits_for() {
            _ if step.is_timed_out() => "timed out at",
            Some(_) => "waits for a signal until",
            None => "sleeps until",
        };
        Self { name, attempt: step.attempt, at, ran, until, until_label }
    }
}

impl GatherRow {
    fn new(gather: &JobGather) -> Self {
        let JobGather { name, total, need, completed, dead, cancelled, most, .. } = gather;
        let total = total.map_or_else(|| "more to come".to_owned(), |total| total.to_string());
        let most = most.map_or_else(|| "all".to_owned(), |most| most.to_string());
        Self { name: display::line(name), total, need: *need, completed: *completed, dead: *dead, cancelled: *cancelled, most }
    }
}

impl LogView {
    fn new(log: &AttemptLog, now: DateTime<Utc>) -> Self {
        Self { attempt: log.attempt, at: Moment::new(log.at, now), cut: log.cut, text: display::lines(&log.text) }
    }
}

struct FailureRow {
    attempt: i16,
    at: Moment,
    ran: String,
    error: String,
}

/// Log of one attempt.
struct LogView {
    attempt: i16,
    at: Moment,
    cut: i64,
    text: String,
}

/// Page for a job that cannot be loaded. Shows only the error and the causes that keep the job from running.
#[derive(Template)]
#[template(path = "job_unavailable.html")]
struct UnavailableJobPage {
    frame: Frame,
    id: JobId,
    text: String,
    causes: Vec<CauseRow>,
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame, Path(id): Path<String>) -> HandlerResult<Response> {
    let id = job_id(&id)?;
    let data = match load_page_data(&app, id).await {
        Ok(data) => data,
        Err(problem) => return unavailable(&app, frame, id, problem).await,
    };
    // If the details cannot be loaded, the page shows the error instead.
    let (read, details_error) = match load_details(&app, &data.job).await {
        Ok(read) => (read, None),
        Err(problem) => (JobDetails::default(), Some(problem.text)),
    };
    let logs = read.logs.iter().rev().map(|log| LogView::new(log, data.now)).collect();
    let steps = read.steps.iter().map(|step| StepRow::new(step, data.now)).collect();
    let (timeline, flow) = (timeline(&read.steps, data.now), (!read.flow.is_empty()).then(|| graph(&read.flow, &id.to_string())));
    let child = |child: &JobChild| ChildRow { name: display::line(&child.name), id: child.id, state: child.current_state().to_owned() };
    let children = read.children.iter().map(child).collect();
    let gathers = read.gathers.iter().map(GatherRow::new).collect();
    let signals = read.signals.iter().map(|one| SignalRow { name: display::line(&one.name), at: Moment::new(one.at, data.now) }).collect();
    let JobRecord { payload, output, meta, state, .. } = &data.job;
    let json = [("payload", payload), ("output", output), ("metadata", meta)];
    let trees = json.into_iter().filter_map(|(name, json)| Some((name, tree(json.as_ref()?.get())))).collect();
    let is_unfinished = !matches!(state, JobState::Completed | JobState::Dead | JobState::Cancelled | JobState::Expired);
    let hidden = app.dashboard.options.hide_payloads;
    let is_durable = *state == JobState::Parked || !(read.steps.is_empty() && read.signals.is_empty());
    let signal = (frame.allows_operations && is_unfinished && is_durable).then(|| awaited(&data.why).unwrap_or_default().to_owned());
    let job = view(&frame, &data);
    Ok(render(&JobPage {
        frame,
        job,
        trees,
        logs,
        steps,
        timeline,
        flow,
        children,
        gathers,
        signals,
        signal,
        details_error,
        hidden,
        is_unfinished,
    })?
    .into_response())
}

async fn load_details(app: &App, job: &JobRecord) -> HandlerResult<JobDetails> {
    let (mut session, id) = (app.begin_read().await?, job.id);
    Ok(JobDetails {
        steps: Queue::on(&mut session).store(app.store).job(id).steps().await?,
        children: Queue::on(&mut session).store(app.store).job(id).children().await?,
        gathers: Queue::on(&mut session).store(app.store).job(id).gathers().await?,
        signals: Queue::on(&mut session).store(app.store).job(id).signals().await?,
        logs: load_logs(&mut session, app, id, &job.job_type).await?,
        // A flow may have many nodes, so it is loaded last. One node more than the graph shows is loaded, so that the page can report an
        // incomplete graph.
        flow: if is_node(job) { Queue::on(&mut session).store(app.store).job(id).first_nodes(MAX_NODES + 1).await? } else { Vec::new() },
    })
}

/// Returns the name of the first signal that the job is waiting for. Ignores signals that a wait for children uses internally.
fn awaited(why: &Why) -> Option<&str> {
    let facts = &why.causes.iter().find(|cause| cause.kind == CauseKind::Parked)?.facts;
    let children = facts.get("children").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut signals = facts.get("signals")?.as_array()?.iter().filter_map(Value::as_str);
    signals.find(|name| children.iter().all(|child| child["wait"] != **name))
}

/// Renders the page of a job that does not exist or cannot be read, for example because a table is locked. The page lists the causes that
/// keep the job from running.
async fn unavailable(app: &App, frame: Frame, id: JobId, problem: Problem) -> HandlerResult<Response> {
    let Ok(mut session) = app.begin_read().await else { return Err(problem) };
    let Ok(why) = Queue::on(&mut session).store(app.store).job(id).why().await else { return Err(problem) };
    let causes = name_commands(why).causes.iter().map(CauseRow::new).collect();
    let Problem { status, text, .. } = problem;
    Ok((status, render(&UnavailableJobPage { frame, id, text, causes })?).into_response())
}

/// Loads a job with its causes and its worker, if any.
pub(super) async fn load_page_data(app: &App, id: JobId) -> HandlerResult<JobPageData> {
    let mut session = app.begin_read().await?;
    let now = Queue::on(&mut session).store(app.store).now().await?;
    let job = load_job(&mut session, app, id).await?;
    let why = name_commands(Queue::on(&mut session).store(app.store).job(id).why().await?);
    let workers = if job.worker.is_some() { Queue::on(&mut session).store(app.store).workers().await? } else { Vec::new() };
    let worker = workers.into_iter().find(|worker| Some(worker.id) == job.worker);
    Ok(JobPageData { job, why, worker, now })
}

impl JobPageData {
    /// Renders the live part of the job page.
    pub(super) fn live(&self, frame: &Frame) -> Option<String> {
        JobLive { frame, job: view(frame, self) }.render().ok()
    }
}

fn view(frame: &Frame, JobPageData { job, why, worker, now }: &JobPageData) -> JobView {
    let failure = |failure: &operate::AttemptFailure| FailureRow {
        attempt: failure.attempt,
        at: Moment::new(failure.at, *now),
        ran: display::duration(failure.ran),
        error: display::lines(&failure.error),
    };
    JobView {
        id: job.id.to_string(),
        job_type: display::line(&job.job_type),
        state: job.state.name(),
        cancelling: job.cancelling,
        facts: facts(frame, job, worker.as_ref(), *now),
        causes: why.causes.iter().map(CauseRow::new).collect(),
        progress: job.progress.as_ref().map(progress_view),
        failures: job.failures.iter().rev().map(failure).collect(),
        error: job.error.as_deref().filter(|_| job.failures.is_empty()).map(display::lines),
        // No operation is allowed on a job that is being cancelled.
        buttons: if job.cancelling { Vec::new() } else { buttons(job.state) },
        can_snooze: matches!(job.state, JobState::Scheduled | JobState::Ready),
        priority: job.priority,
    }
}

fn facts(frame: &Frame, job: &JobRecord, worker: Option<&WorkerRecord>, now: DateTime<Utc>) -> Vec<Fact> {
    let plain = |name, value: String| Fact { name, value: display::line(&value), moment: None, link: None };
    let moment = |name, at| Fact { name, value: String::new(), moment: Some(Moment::new(at, now)), link: None };
    let list = |key: &str, value: &str| format!("{}/jobs?q={key}:{}", frame.base, display::percent_encode(value));
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
    facts.extend(job.finished_at.map(|at| moment(if job.state == JobState::Dead { "died" } else { "finished" }, at)));
    facts.extend(job.ran.map(|ran| plain("ran", display::duration(ran))));
    let named = |id: Uuid| {
        worker.map_or_else(|| format!("{id}, no longer registered"), |worker| format!("{} ({}:{})", worker.name, worker.host, worker.pid))
    };
    facts.extend(job.worker.map(|id| plain("worker", named(id))));
    facts
}

fn progress_view(progress: &Progress) -> ProgressView {
    let counts = progress.counts.iter().map(|(name, count)| format!("{name} {count}"));
    let text: Vec<String> = progress.stage.iter().cloned().chain(counts).collect();
    let percent = progress.fraction.map(percent);
    ProgressView { percent, text: display::line(&text.join("; ")) }
}
