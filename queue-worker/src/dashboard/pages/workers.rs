//! Workers page, with the state, jobs, slots and queues of each worker.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{Queue, operate};

use super::frame::{Frame, render};
use crate::dashboard::{
    app::AppState,
    display::{self, Moment},
    problem::HandlerResult,
};

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    workers: Vec<WorkerRow>,
    more: usize,
}

struct WorkerRow {
    name: String,
    place: String,
    queues: String,
    version: String,
    alive: bool,
    jobs: i64,
    slots: String,
    memory: String,
    started: Moment,
    expires: Moment,
}

/// Maximum number of workers on the page.
const MAX_SHOWN: usize = 500;

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let mut session = app.begin_read().await?;
    let now = Queue::on(&mut session).store(app.store).now().await?;
    let workers = Queue::on(&mut session).store(app.store).workers().await?;
    drop(session);
    let row = |worker: &operate::WorkerRecord| WorkerRow {
        name: display::line(&worker.name),
        place: display::line(&format!("{}:{}", worker.host, worker.pid)),
        queues: if worker.queues.is_empty() { "all".to_owned() } else { display::truncate(&worker.queues.join(", "), 200) },
        version: display::line(&worker.version),
        alive: worker.alive,
        jobs: worker.jobs,
        slots: worker.busy.zip(worker.slots).map_or_else(String::new, |(busy, slots)| format!("{busy} of {slots}")),
        memory: worker.memory.map_or_else(String::new, |bytes| format!("{} MiB", bytes >> 20)),
        started: Moment::new(worker.started_at, now),
        expires: Moment::new(worker.expires_at, now),
    };
    render(&WorkersPage {
        frame,
        more: workers.len().saturating_sub(MAX_SHOWN),
        workers: workers.iter().take(MAX_SHOWN).map(row).collect(),
    })
}
