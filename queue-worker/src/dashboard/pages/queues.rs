//! Queues page, with waiting jobs, capacities and pauses.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    JobState, Queue,
    operate::{self, Pause},
};

use super::frame::{Frame, render};
use crate::dashboard::{
    api::busiest_and_oldest,
    app::AppState,
    display::{self, Moment},
    problem::HandlerResult,
};

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    everything: bool,
    queues: Vec<QueueRow>,
    pauses: Vec<PauseRow>,
    more: usize,
}

struct QueueRow {
    name: String,
    /// Percent-encoded queue name for URLs.
    path: String,
    ready: String,
    waiting: String,
    waited: Option<String>,
    capacity: Option<u64>,
    is_paused: bool,
}

struct PauseRow {
    scope: String,
    queue: String,
    job_type: String,
    reason: String,
    by: String,
    since: Moment,
    ready: String,
    awaits: i64,
}

/// Maximum number of queues, and of pauses, on the page.
const MAX_SHOWN: usize = 200;

impl PauseRow {
    fn new(pause: &Pause, now: chrono::DateTime<chrono::Utc>) -> Self {
        let name = |name: &Option<String>| display::line(name.as_deref().unwrap_or_default());
        Self {
            scope: display::line(&pause.scope.to_string()),
            queue: name(&pause.scope.queue),
            job_type: name(&pause.scope.job_type),
            reason: name(&pause.reason),
            by: display::line(&pause.paused_by),
            since: Moment::new(pause.paused_at, now),
            ready: display::count(pause.ready, pause.partial),
            awaits: pause.awaits,
        }
    }
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let (mut session, store) = (app.begin_read().await?, app.store);
    let (busiest, oldest) = busiest_and_oldest(&app, &mut session, MAX_SHOWN as u16).await?;
    let counts = busiest.counts;
    let queue = Queue::on(&mut session).store(store);
    let now = queue.now().await?;
    let names = queue.queues().await?;
    let capacities = queue.capacities().await?;
    let pauses = queue.pauses().await?;
    drop(session);
    let mut sums: BTreeMap<&str, [(i64, bool); 2]> = BTreeMap::new();
    for count in &counts {
        let [ready, waiting] = sums.entry(&count.queue).or_default();
        let place = match count.state {
            JobState::Ready => ready,
            JobState::Scheduled | JobState::Blocked | JobState::Parked => waiting,
            _ => continue,
        };
        *place = (place.0 + count.jobs, place.1 | count.partial);
    }
    let row = |name: &String| {
        let [ready, waiting] = sums.get(name.as_str()).copied().unwrap_or_default().map(|(jobs, partial)| display::count(jobs, partial));
        QueueRow {
            name: display::line(name),
            path: display::percent_encode(name),
            ready,
            waiting,
            waited: oldest.iter().find(|first| first.queue == *name).and_then(|first| first.waited).map(display::duration),
            capacity: capacities.iter().find(|of| of.queue == *name).map(|of| of.capacity),
            is_paused: pauses.iter().any(|pause| pause.scope.queue.as_ref() == Some(name) && pause.scope.job_type.is_none()),
        }
    };
    // If there are more than `MAX_SHOWN` queues, the queues with jobs, a pause or a capacity take precedence.
    let mut shown: Vec<&String> = names.iter().collect();
    if shown.len() > MAX_SHOWN {
        let has = |name: &str| sums.contains_key(name) || capacities.iter().any(|of| of.queue == name);
        let is_paused = |name: &str| pauses.iter().any(|pause| pause.scope.queue.as_deref() == Some(name));
        shown.sort_by_key(|name| !has(name) && !is_paused(name));
        shown.truncate(MAX_SHOWN);
    }
    render(&QueuesPage {
        frame,
        everything: pauses.iter().any(|pause| pause.scope == operate::Scope::EVERYTHING),
        queues: shown.into_iter().map(row).collect(),
        pauses: pauses.iter().take(MAX_SHOWN).map(|pause| PauseRow::new(pause, now)).collect(),
        more: names.len().saturating_sub(MAX_SHOWN),
    })
}
