//! Workers: who lives, what each holds and serves.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::operate;

use super::frame::{Frame, page as write};
use crate::dashboard::{
    app::Shared,
    problem::Answer,
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    workers: Vec<Row>,
    more: usize,
}

struct Row {
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

/// So many are shown.
const MOST: usize = 500;

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let mut session = app.look().await?;
    let now = operate::now(&mut *session, app.store).await?;
    let workers = operate::workers(&mut *session, app.store).await?;
    drop(session);
    let row = |worker: &operate::WorkerRecord| Row {
        name: show::line(&worker.name),
        place: show::line(&format!("{}:{}", worker.host, worker.pid)),
        queues: if worker.queues.is_empty() { "any".to_owned() } else { show::short(&worker.queues.join(", "), 200) },
        version: show::line(&worker.version),
        alive: worker.alive,
        jobs: worker.jobs,
        slots: worker.busy.zip(worker.slots).map_or_else(String::new, |(busy, slots)| format!("{busy} of {slots}")),
        memory: worker.memory.map_or_else(String::new, |bytes| format!("{} MiB", bytes >> 20)),
        started: Moment::new(worker.started_at, now),
        expires: Moment::new(worker.expires_at, now),
    };
    write(&WorkersPage { frame, more: workers.len().saturating_sub(MOST), workers: workers.iter().take(MOST).map(row).collect() })
}
