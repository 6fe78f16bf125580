//! Dead letters by why they died.

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
#[template(path = "dead.html")]
struct DeadPage {
    frame: Frame,
    groups: Vec<Row>,
    more: usize,
    looked_at: u64,
    partial: bool,
}

struct Row {
    job_type: String,
    /// As it is said back; only shown in a field that is not seen.
    error: String,
    shown: String,
    jobs: u64,
    first: Moment,
    last: Moment,
    example: String,
    queues: String,
}

/// So many groups are shown.
const MOST: usize = 50;

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let mut session = app.look().await?;
    let now = operate::now(&mut *session, app.store).await?;
    let found = operate::dead_groups(&mut *session, app.store).await?;
    drop(session);
    let row = |group: &operate::DeadGroup| Row {
        job_type: show::line(&group.job_type),
        error: group.error.clone(),
        shown: show::line(&group.error),
        jobs: group.jobs,
        first: Moment::new(group.first, now),
        last: Moment::new(group.last, now),
        example: group.example.to_string(),
        queues: show::short(&group.queues.join(", "), 100),
    };
    write(&DeadPage {
        frame,
        groups: found.groups.iter().take(MOST).map(row).collect(),
        more: found.groups.len().saturating_sub(MOST),
        looked_at: found.looked_at,
        partial: found.partial,
    })
}
