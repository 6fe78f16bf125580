//! Queues: what waits, what is paused, how many may wait; and the pauses.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    JobState,
    operate::{self, Pause},
};

use super::frame::{Frame, page as write};
use crate::dashboard::{
    api::busiest_and_oldest,
    app::Shared,
    problem::Answer,
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    everything: bool,
    queues: Vec<Row>,
    pauses: Vec<PauseRow>,
    more: usize,
}

struct Row {
    name: String,
    /// As it stands in an address.
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

/// So many queues and pauses are shown.
const MOST: usize = 200;

impl PauseRow {
    fn new(pause: &Pause, now: chrono::DateTime<chrono::Utc>) -> Self {
        let name = |name: &Option<String>| show::line(name.as_deref().unwrap_or_default());
        Self {
            scope: show::line(&pause.scope.to_string()),
            queue: name(&pause.scope.queue),
            job_type: name(&pause.scope.job_type),
            reason: name(&pause.reason),
            by: show::line(&pause.paused_by),
            since: Moment::new(pause.paused_at, now),
            ready: show::count(pause.ready, pause.partial),
            awaits: pause.awaits,
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let (mut session, store) = (app.look().await?, app.store);
    let now = operate::now(&mut *session, store).await?;
    let names = operate::queues(&mut *session, store).await?;
    let (busiest, oldest) = busiest_and_oldest(&app, &mut session, MOST as u16).await?;
    let counts = busiest.counts;
    let capacities = operate::capacities(&mut *session, store).await?;
    let pauses = operate::pauses(&mut *session, store).await?;
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
        let [ready, waiting] = sums.get(name.as_str()).copied().unwrap_or_default().map(|(jobs, partial)| show::count(jobs, partial));
        Row {
            name: show::line(name),
            path: show::in_address(name),
            ready,
            waiting,
            waited: oldest.iter().find(|first| first.queue == *name).and_then(|first| first.waited).map(show::span),
            capacity: capacities.iter().find(|of| of.queue == *name).map(|of| of.capacity),
            is_paused: pauses.iter().any(|pause| pause.scope.queue.as_ref() == Some(name) && pause.scope.job_type.is_none()),
        }
    };
    // If there are too many: those that have jobs, a pause or a capacity first.
    let mut shown: Vec<&String> = names.iter().collect();
    if shown.len() > MOST {
        let has = |name: &str| sums.contains_key(name) || capacities.iter().any(|of| of.queue == name);
        let is_paused = |name: &str| pauses.iter().any(|pause| pause.scope.queue.as_deref() == Some(name));
        shown.sort_by_key(|name| !has(name) && !is_paused(name));
        shown.truncate(MOST);
    }
    write(&QueuesPage {
        frame,
        everything: pauses.iter().any(|pause| pause.scope == operate::Scope::EVERYTHING),
        queues: shown.into_iter().map(row).collect(),
        pauses: pauses.iter().take(MOST).map(|pause| PauseRow::new(pause, now)).collect(),
        more: names.len().saturating_sub(MOST),
    })
}
