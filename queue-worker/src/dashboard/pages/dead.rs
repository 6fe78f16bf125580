//! Page that lists dead letters grouped by error.

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
#[template(path = "dead.html")]
struct DeadPage {
    frame: Frame,
    groups: Vec<DeadGroupRow>,
    more: usize,
    looked_at: u64,
    partial: bool,
}

struct DeadGroupRow {
    job_type: String,
    /// Unescaped error of the group. A hidden form field submits this text to identify the group.
    error: String,
    shown: String,
    jobs: u64,
    first: Moment,
    last: Moment,
    example: String,
    queues: String,
}

/// Maximum number of groups on the page.
const MAX_SHOWN: usize = 50;

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let mut session = app.begin_read().await?;
    let now = Queue::on(&mut session).store(app.store).now().await?;
    let found = Queue::on(&mut session).store(app.store).dead_groups().await?;
    drop(session);
    let row = |group: &operate::DeadGroup| DeadGroupRow {
        job_type: display::line(&group.job_type),
        error: group.error.clone(),
        shown: display::line(&group.error),
        jobs: group.jobs,
        first: Moment::new(group.first, now),
        last: Moment::new(group.last, now),
        example: group.example.to_string(),
        queues: display::truncate(&group.queues.join(", "), 100),
    };
    render(&DeadPage {
        frame,
        groups: found.groups.iter().take(MAX_SHOWN).map(row).collect(),
        more: found.groups.len().saturating_sub(MAX_SHOWN),
        looked_at: found.looked_at,
        partial: found.partial,
    })
}
