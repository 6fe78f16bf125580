//! Overview page of a store, with jobs by state and queue, the longest waits, and worker counts.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::JobState;

use super::frame::{Frame, render};
use crate::dashboard::{
    api::{Overview, load_overview},
    app::AppState,
    display::{self, Moment},
    problem::HandlerResult,
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
    alive: usize,
    silent: usize,
    held: i64,
    at: Moment,
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

/// Job states shown for each queue.
const QUEUE_STATES: [JobState; 7] =
    [JobState::Ready, JobState::Running, JobState::Scheduled, JobState::Blocked, JobState::Parked, JobState::Completed, JobState::Dead];

impl OverviewFigures {
    pub(super) fn new(overview: &Overview) -> Self {
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
            alive,
            silent: overview.workers.len() - alive,
            held: overview.workers.iter().map(|worker| worker.jobs).sum(),
            at: Moment::new(overview.now, overview.now),
        }
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
    let overview = load_overview(&app).await?;
    render(&OverviewPage { frame, figures: OverviewFigures::new(&overview) })
}
