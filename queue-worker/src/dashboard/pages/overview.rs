//! Overview page of a store, with jobs by state and queue, charts of the last hour and day, what needs attention, and the workers.

use std::{collections::BTreeMap, time::Duration};

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    JobState,
    operate::{LimitStatus, WorkerRecord},
};

use super::{
    chart::Charts,
    frame::{Frame, render},
};
use crate::dashboard::{
    api::{Overview, load_overview, load_trends},
    app::AppState,
    display::{self, Moment},
    problem::HandlerResult,
    trends::{DAY, HOUR, Trends},
};

#[derive(Template)]
#[template(path = "overview.html")]
pub(super) struct OverviewPage {
    pub(super) frame: Frame,
    pub(super) figures: OverviewFigures,
}

/// Part of the overview page that is updated live.
#[derive(Template)]
#[template(path = "figures.html")]
pub(super) struct OverviewLive {
    pub(super) frame: Frame,
    pub(super) figures: OverviewFigures,
}

/// Data for the live part of the overview page.
pub(super) struct OverviewFigures {
    states: Vec<StateTile>,
    queues: Vec<QueueCounts>,
    /// Number of queue and type pairs that were found but are not shown.
    more: i64,
    unserved: Vec<[String; 3]>,
    /// Number of unserved combinations of queue, type and version that are not shown. No live worker serves an unserved combination.
    more_unserved: usize,
    everything: Option<String>,
    /// Charts of the last hour and of the last day, with their titles.
    periods: [(&'static str, Charts); 2],
    notices: Vec<Notice>,
    failing: Vec<FailingType>,
    alive: usize,
    silent: usize,
    held: i64,
    /// Busy slots and all slots of the live workers.
    slots: (i32, i32),
    /// Live workers with the highest utilisation.
    busiest: Vec<WorkerLoad>,
    at: Moment,
}

/// Line about a pause, a limit that holds jobs back, or a queue whose jobs are late.
struct Notice {
    /// Word for the kind of notice, shown as a mark.
    mark: &'static str,
    text: String,
    /// Path of the page about the subject, below the base path.
    link: String,
}

/// Job type with failed attempts in the last hour.
struct FailingType {
    name: String,
    /// Value of the search for the type's dead letters.
    query: String,
    failed: String,
    dead: String,
    share: String,
}

/// Busy slots of one worker.
struct WorkerLoad {
    name: String,
    busy: i32,
    slots: i32,
}

/// Number of jobs in one state, shown as a tile.
struct StateTile {
    name: &'static str,
    count: String,
    is_some: bool,
}

/// Table row with the job counts of one queue.
struct QueueCounts {
    name: String,
    counts: Vec<(&'static str, String, bool)>,
    waited: Option<String>,
    paused: bool,
}

/// Maximum number of listed combinations of queue, type and version that no live worker serves.
const MAX_UNSERVED: usize = 20;

/// Maximum number of notices, of failing types and of workers on the page.
const MAX_NOTICES: usize = 12;
const MAX_FAILING: usize = 6;
const MAX_WORKERS: usize = 8;

/// Waiting time of a ready job from which its queue is shown as late.
const LATE: Duration = Duration::from_mins(1);

/// Width of the charts in SVG units. Two columns of charts fit side by side.
const CHART_WIDTH: u32 = 560;

/// Job states shown for each queue.
const QUEUE_STATES: [JobState; 7] =
    [JobState::Ready, JobState::Running, JobState::Scheduled, JobState::Blocked, JobState::Parked, JobState::Completed, JobState::Dead];

impl OverviewFigures {
    pub(super) fn new(overview: &Overview, trends: &Trends) -> Self {
        let mut queues: BTreeMap<&str, BTreeMap<JobState, (i64, bool)>> = BTreeMap::new();
        for count in &overview.counts {
            let sum = queues.entry(&count.queue).or_default().entry(count.state).or_default();
            *sum = (sum.0 + count.jobs, sum.1 | count.partial);
        }
        let tile = |state: JobState| {
            let total = overview.totals.iter().find(|total| total.state == state);
            let (jobs, partial) = total.map(|total| (total.jobs, total.partial)).unwrap_or_default();
            StateTile { name: state.name(), count: display::count(jobs, partial), is_some: jobs > 0 }
        };
        let unserved = overview.unserved.iter().take(MAX_UNSERVED);
        let alive = overview.workers.iter().filter(|worker| worker.alive).count();
        let mut loads: Vec<WorkerLoad> = overview.workers.iter().filter(|worker| worker.alive).filter_map(WorkerLoad::new).collect();
        loads.sort_by(|one, other| other.share().total_cmp(&one.share()).then_with(|| one.name.cmp(&other.name)));
        let everything = overview.paused.iter().find(|pause| pause.scope.queue.is_none() && pause.scope.job_type.is_none());
        Self {
            states: JobState::ALL.map(tile).into(),
            more: overview.more,
            queues: queues.into_iter().map(|(name, sums)| QueueCounts::new(overview, name, &sums)).collect(),
            unserved: unserved
                .map(|of| [display::line(&of.queue), display::line(&of.job_type), display::count(of.jobs, of.partial)])
                .collect(),
            more_unserved: overview.unserved.len().saturating_sub(MAX_UNSERVED),
            everything: everything.map(|pause| display::line(pause.reason.as_deref().unwrap_or("no reason given"))),
            periods: [("Last hour", &trends.hour, HOUR), ("Last day", &trends.day, DAY)]
                .map(|(name, steps, span)| (name, Charts::new(steps, trends.now, span, CHART_WIDTH))),
            notices: notices(overview, trends),
            failing: failing_types(trends),
            slots: (loads.iter().map(|load| load.busy).sum(), loads.iter().map(|load| load.slots).sum()),
            busiest: loads.into_iter().take(MAX_WORKERS).collect(),
            alive,
            silent: overview.workers.len() - alive,
            held: overview.workers.iter().map(|worker| worker.jobs).sum(),
            at: Moment::new(overview.now, overview.now),
        }
    }
}

/// Returns what needs attention: pauses, limits that hold jobs back, and late queues.
fn notices(overview: &Overview, trends: &Trends) -> Vec<Notice> {
    let mut notices = Vec::new();
    for pause in overview.paused.iter().filter(|pause| pause.scope.queue.is_some() || pause.scope.job_type.is_some()) {
        let lasted = display::duration((overview.now - pause.paused_at).to_std().unwrap_or_default());
        let reason = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let ready = display::count(pause.ready, pause.partial);
        let text = display::truncate(&format!("{}, for {lasted}, {ready} ready{reason}", pause.scope), 160);
        notices.push(Notice { mark: "paused", text, link: "/queues".to_owned() });
    }
    for limit in trends.limits.iter().filter(|limit| holds_back(limit)) {
        let waiting = display::count(limit.waiting, limit.partial);
        let used = limit.figures.concurrency.map(|most| format!(", {} of {most} running", limit.used)).unwrap_or_default();
        let text = display::truncate(&format!("{}{used}, {waiting} waiting", limit.name), 160);
        notices.push(Notice { mark: "limited", text, link: "/limits".to_owned() });
    }
    for oldest in &overview.oldest {
        if let Some(waited) = oldest.waited.filter(|waited| *waited >= LATE) {
            let text = format!("queue {}, the oldest ready job has waited {}", display::line(&oldest.queue), display::duration(waited));
            let link = format!("/jobs?q=queue:{}&state=ready", display::percent_encode(&oldest.queue));
            notices.push(Notice { mark: "late", text, link });
        }
    }
    notices.truncate(MAX_NOTICES);
    notices
}

/// Returns whether jobs are waiting because of the limit.
fn holds_back(limit: &LimitStatus) -> bool {
    let is_full = limit.figures.concurrency.is_some_and(|most| limit.used >= most.into());
    limit.waiting > 0 && (is_full || limit.next_ms.is_some() || limit.awaits > 0)
}

/// Returns the job types with the most failed attempts in the last hour.
fn failing_types(trends: &Trends) -> Vec<FailingType> {
    let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for of in &trends.types {
        let sum = sums.entry(of.job_type.as_deref().unwrap_or("*")).or_default();
        *sum = (sum.0 + of.failed(), sum.1 + of.dead, sum.2 + of.attempts());
    }
    let mut failing: Vec<_> = sums.into_iter().filter(|(_, (failed, ..))| *failed > 0).collect();
    failing.sort_by_key(|(_, (failed, ..))| std::cmp::Reverse(*failed));
    let row = |(name, (failed, dead, attempts)): (&str, (u64, u64, u64))| FailingType {
        name: display::line(name),
        query: display::percent_encode(&format!("type:{name}")),
        failed: display::count(failed as i64, false),
        dead: display::count(dead as i64, false),
        share: format!("{:.1} %", failed as f64 * 100.0 / attempts.max(1) as f64),
    };
    failing.into_iter().take(MAX_FAILING).map(row).collect()
}

impl WorkerLoad {
    fn new(worker: &WorkerRecord) -> Option<Self> {
        Some(Self { name: display::line(&worker.name), busy: worker.busy?, slots: worker.slots.filter(|slots| *slots > 0)? })
    }

    fn share(&self) -> f64 {
        f64::from(self.busy) / f64::from(self.slots)
    }
}

impl QueueCounts {
    fn new(overview: &Overview, name: &str, sums: &BTreeMap<JobState, (i64, bool)>) -> Self {
        let first = overview.oldest.iter().find(|first| first.queue == name);
        let cell = |state: JobState| {
            let (jobs, partial) = sums.get(&state).copied().unwrap_or_default();
            (state.name(), display::count(jobs, partial), jobs > 0)
        };
        Self {
            name: display::line(name),
            counts: QUEUE_STATES.map(cell).into(),
            waited: first.and_then(|first| Some(format!("{}{}", display::duration(first.waited?), if first.partial { "+" } else { "" }))),
            paused: overview.paused.iter().any(|pause| pause.scope.queue.as_deref() == Some(name) && pause.scope.job_type.is_none()),
        }
    }
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let (overview, trends) = (load_overview(&app).await?, load_trends(&app).await?);
    render(&OverviewPage { frame, figures: OverviewFigures::new(&overview, &trends) })
}
