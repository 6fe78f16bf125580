//! The first page: how many jobs are where, who waits longest, who works.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::JobState;

use super::frame::{Frame, page as write};
use crate::dashboard::{
    api::{Overview, gather},
    app::Shared,
    problem::Answer,
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "overview.html")]
pub(super) struct OverviewPage {
    pub(super) frame: Frame,
    pub(super) figures: Figures,
}

/// What changes, by itself.
#[derive(Template)]
#[template(path = "figures.html")]
pub(super) struct FiguresPart {
    pub(super) frame: Frame,
    pub(super) figures: Figures,
}

/// What changes.
pub(super) struct Figures {
    states: Vec<Tile>,
    queues: Vec<QueueRow>,
    /// Queues and types beyond those shown.
    more: i64,
    unserved: Vec<[String; 3]>,
    /// So many more than those shown are seen.
    more_unserved: usize,
    everything: Option<String>,
    alive: usize,
    silent: usize,
    held: i64,
    at: Moment,
}

/// How many jobs are in a state.
struct Tile {
    name: &'static str,
    count: String,
    is_some: bool,
}

/// A queue in figures.
struct QueueRow {
    name: String,
    counts: Vec<(&'static str, String, bool)>,
    waited: Option<String>,
    paused: bool,
}

/// So many queues without a worker are shown.
const UNSERVED: usize = 20;

/// Of a queue: what is to come, what is now, what went wrong.
const OF_QUEUE: [JobState; 7] =
    [JobState::Ready, JobState::Running, JobState::Scheduled, JobState::Blocked, JobState::Parked, JobState::Completed, JobState::Dead];

impl Figures {
    pub(super) fn new(overview: &Overview) -> Self {
        let mut queues: BTreeMap<&str, BTreeMap<JobState, (i64, bool)>> = BTreeMap::new();
        for count in &overview.counts {
            let sum = queues.entry(&count.queue).or_default().entry(count.state).or_default();
            *sum = (sum.0 + count.jobs, sum.1 | count.partial);
        }
        let tile = |state: JobState| {
            let total = overview.totals.iter().find(|total| total.state == state);
            let (jobs, partial) = total.map(|total| (total.jobs, total.partial)).unwrap_or_default();
            Tile { name: state.name(), count: show::count(jobs, partial), is_some: jobs > 0 }
        };
        let unserved = overview.unserved.iter().take(UNSERVED);
        let alive = overview.workers.iter().filter(|worker| worker.alive).count();
        let everything = overview.paused.iter().find(|pause| pause.scope.queue.is_none() && pause.scope.job_type.is_none());
        Self {
            states: JobState::ALL.map(tile).into(),
            more: overview.more,
            queues: queues.into_iter().map(|(name, sums)| QueueRow::new(overview, name, &sums)).collect(),
            unserved: unserved.map(|of| [show::line(&of.queue), show::line(&of.job_type), show::count(of.jobs, of.partial)]).collect(),
            more_unserved: overview.unserved.len().saturating_sub(UNSERVED),
            everything: everything.map(|pause| show::line(pause.reason.as_deref().unwrap_or("no reason was given"))),
            alive,
            silent: overview.workers.len() - alive,
            held: overview.workers.iter().map(|worker| worker.jobs).sum(),
            at: Moment::new(overview.now, overview.now),
        }
    }
}

impl QueueRow {
    fn new(overview: &Overview, name: &str, sums: &BTreeMap<JobState, (i64, bool)>) -> Self {
        let first = overview.oldest.iter().find(|first| first.queue == name);
        let cell = |state: JobState| {
            let (jobs, partial) = sums.get(&state).copied().unwrap_or_default();
            (state.name(), show::count(jobs, partial), jobs > 0)
        };
        Self {
            name: show::line(name),
            counts: OF_QUEUE.map(cell).into(),
            waited: first.and_then(|first| Some(format!("{}{}", show::span(first.waited?), if first.partial { "+" } else { "" }))),
            paused: overview.paused.iter().any(|pause| pause.scope.queue.as_deref() == Some(name) && pause.scope.job_type.is_none()),
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let overview = gather(&app).await?;
    write(&OverviewPage { frame, figures: Figures::new(&overview) })
}
