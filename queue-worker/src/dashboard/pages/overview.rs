//! Overview page of a store, with job counts, charts, notices and workers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    JobState,
    operate::{AttemptStatistics, LimitStatus, Oldest, WorkerRecord},
};

use super::{
    chart::Charts,
    frame::{Frame, render},
};
use crate::dashboard::{
    api::{Overview, load_overview, load_trends},
    app::AppState,
    display::{self, Moment},
    problem::{HandlerResult, Problem},
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
    /// Number of queue and type pairs that were counted but are not shown.
    more: i64,
    unserved: Vec<[String; 3]>,
    /// Number of combinations of queue, type and version that no live worker serves and that are not in `unserved`.
    more_unserved: usize,
    everything: Option<String>,
    trends: HandlerResult<TrendFigures>,
    notices: Vec<Notice>,
    /// Number of notices that are not shown.
    more_notices: usize,
    alive: usize,
    silent: usize,
    held: i64,
    /// Number of busy slots and total number of slots, summed over the live workers.
    slots: (i64, i64),
    /// Live workers with the highest utilization.
    busiest: Vec<WorkerLoad>,
    at: Moment,
}

/// Part of the overview that is based on the attempt statistics.
struct TrendFigures {
    /// HTML id of the element with the charts. Changes when the statistics are reloaded. A live update preserves an element with an
    /// unchanged id, so that its tooltip stays open.
    id: String,
    /// Charts of the last hour and of the last day, with their titles.
    periods: [(&'static str, Charts); 2],
    failing: Vec<FailingType>,
}

/// Notice about a pause, a limit that defers jobs, or a queue whose jobs are late.
struct Notice {
    /// Kind of notice, shown as a label.
    mark: &'static str,
    text: String,
    /// Path of the linked page, relative to the base path.
    link: String,
}

/// Job type with failed attempts in the last hour.
struct FailingType {
    name: String,
    /// Query string of the linked job list. The list shows the dead letters of the type, or all its jobs if none died in the last
    /// hour. `None` for the combined row [`REST`].
    query: Option<String>,
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

/// Maximum numbers of notices, failing types and workers on the page.
const MAX_NOTICES: usize = 12;
const MAX_FAILING: usize = 6;
const MAX_WORKERS: usize = 8;

/// Name under which the statistics combine the types and queues that are not counted separately.
const REST: &str = "*";

/// Waiting time of a queue's oldest ready job at which the queue counts as late.
const LATE: Duration = Duration::from_mins(1);

/// Width of the charts in SVG units. Two columns of charts fit side by side.
const CHART_WIDTH: u32 = 560;

/// Job states shown for each queue.
const QUEUE_STATES: [JobState; 7] =
    [JobState::Ready, JobState::Running, JobState::Scheduled, JobState::Blocked, JobState::Parked, JobState::Completed, JobState::Dead];

impl OverviewFigures {
    /// Lays out the overview. If the trends could not be loaded, the page shows the error instead of the charts.
    pub(super) fn new(overview: &Overview, trends: &HandlerResult<Arc<Trends>>) -> Self {
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
        let notices = notices(overview, trends.as_ref().map_or(&[], |trends| &trends.limits));
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
            trends: trends.as_deref().map(TrendFigures::new).map_err(Problem::clone),
            more_notices: notices.len().saturating_sub(MAX_NOTICES),
            notices: notices.into_iter().take(MAX_NOTICES).collect(),
            slots: (loads.iter().map(|load| i64::from(load.busy)).sum(), loads.iter().map(|load| i64::from(load.slots)).sum()),
            busiest: loads.into_iter().take(MAX_WORKERS).collect(),
            alive,
            silent: overview.workers.len() - alive,
            held: overview.workers.iter().map(|worker| worker.jobs).sum(),
            at: Moment::new(overview.now, overview.now),
        }
    }
}

impl TrendFigures {
    fn new(trends: &Trends) -> Self {
        Self {
            id: format!("trends-{}", trends.now.timestamp_millis()),
            periods: [("Last hour", &trends.hour, HOUR), ("Last day", &trends.day, DAY)]
                .map(|(name, steps, span)| (name, Charts::new(steps, trends.now, span, CHART_WIDTH))),
            failing: failing_types(&trends.types),
        }
    }

    fn has_charts(&self) -> bool {
        self.periods.iter().any(|(_, charts)| !charts.is_empty)
    }
}

/// Returns notices about pauses, limits that defer jobs, and late queues that are not paused.
fn notices(overview: &Overview, limits: &[LimitStatus]) -> Vec<Notice> {
    let mut notices = Vec::new();
    for pause in overview.paused.iter().filter(|pause| pause.scope.queue.is_some() || pause.scope.job_type.is_some()) {
        let lasted = display::duration((overview.now - pause.paused_at).to_std().unwrap_or_default());
        let reason = pause.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let ready = display::count(pause.ready, pause.partial);
        let text = display::truncate(&format!("{}, for {lasted}, {ready} ready{reason}", pause.scope), 160);
        notices.push(Notice { mark: "paused", text, link: "/queues".to_owned() });
    }
    for limit in limits.iter().filter(|limit| defers_jobs(limit)) {
        let waiting = display::count(limit.waiting, limit.partial);
        let most = limit.figures.concurrency.filter(|_| !limit.keyed);
        let used = most.map(|most| format!(", {} of {most} running", limit.used)).unwrap_or_default();
        let text = display::truncate(&format!("{}{used}, {waiting} waiting", limit.name), 160);
        notices.push(Notice { mark: "limited", text, link: "/limits".to_owned() });
    }
    for oldest in overview.oldest.iter().filter(|oldest| !is_paused(overview, &oldest.queue)) {
        if let Some(waited) = waited(oldest).filter(|_| oldest.waited >= Some(LATE)) {
            let text = format!("queue {}, the oldest ready job has waited {waited}", display::line(&oldest.queue));
            let link = format!("/jobs?q=queue:{}&state=ready", display::percent_encode(&oldest.queue));
            notices.push(Notice { mark: "late", text, link });
        }
    }
    notices
}

/// Returns whether jobs are waiting because of the limit. Returns `false` for a keyed limit that all live workers have acknowledged,
/// because its totals do not show whether any key has reached its limit.
fn defers_jobs(limit: &LimitStatus) -> bool {
    let is_full = limit.figures.concurrency.is_some_and(|most| limit.used >= most.into());
    limit.waiting > 0 && (limit.awaits > 0 || !limit.keyed && (is_full || limit.next_ms.is_some()))
}

/// Returns whether a pause covers exactly this queue with all its types. A pause of the whole store does not count.
fn is_paused(overview: &Overview, queue: &str) -> bool {
    overview.paused.iter().any(|pause| pause.scope.queue.as_deref() == Some(queue) && pause.scope.job_type.is_none())
}

/// Formats the waiting time of a queue's oldest ready job. Returns `None` if no ready job was found.
fn waited(oldest: &Oldest) -> Option<String> {
    Some(format!("{}{}", display::duration(oldest.waited?), if oldest.partial { "+" } else { "" }))
}

/// Returns the job types with the most failed attempts in the last hour.
fn failing_types(types: &[AttemptStatistics]) -> Vec<FailingType> {
    let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for of in types {
        let sum = sums.entry(of.job_type.as_deref().unwrap_or(REST)).or_default();
        *sum = (sum.0 + of.failed(), sum.1 + of.dead, sum.2 + of.attempts());
    }
    let mut failing: Vec<_> = sums.into_iter().filter(|(_, (failed, ..))| *failed > 0).collect();
    failing.sort_by_key(|(_, (failed, ..))| std::cmp::Reverse(*failed));
    let row = |(name, (failed, dead, attempts)): (&str, (u64, u64, u64))| FailingType {
        name: display::line(name),
        query: (name != REST)
            .then(|| format!("q={}{}", display::percent_encode(&format!("type:{name}")), if dead > 0 { "&state=dead" } else { "" })),
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
            waited: first.and_then(waited),
            paused: is_paused(overview, name),
        }
    }
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let (overview, trends) = (load_overview(&app).await?, load_trends(&app).await);
    render(&OverviewPage { frame, figures: OverviewFigures::new(&overview, &trends) })
}
