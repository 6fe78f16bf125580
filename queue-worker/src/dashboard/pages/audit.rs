//! Who did what to how many jobs.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::operate;

use super::frame::{Frame, page as write};
use crate::dashboard::{
    acts::ActOnItsWay,
    api::{Asked, AskedAudit},
    app::Shared,
    problem::Answer,
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    /// Of this process.
    on_their_way: Vec<OnItsWay>,
    rows: Vec<Row>,
    next: Option<i64>,
}

struct OnItsWay {
    number: u64,
    actor: String,
    act: String,
    what: String,
    since: String,
}

struct Row {
    at: Moment,
    actor: String,
    role: String,
    act: String,
    what: String,
    jobs: String,
}

/// So many a page.
const MOST: u32 = 100;

pub(super) async fn page(State(app): State<Shared>, frame: Frame, Asked(asked): Asked<AskedAudit>) -> Answer<Html<String>> {
    let mut session = app.look().await?;
    let now = operate::now(&mut *session, app.store).await?;
    let found = operate::audit(&mut *session, app.store, asked.before, MOST).await?;
    drop(session);
    let row = |of: &operate::AuditRecord| Row {
        at: Moment::new(of.at, now),
        actor: show::line(&of.actor),
        role: show::line(&of.role),
        act: show::line(&of.act),
        what: show::short(&of.what, 300),
        jobs: if of.jobs == 0 { String::new() } else { show::count(of.jobs, false) },
    };
    let next = found.last().map(|last| last.id).filter(|_| found.len() >= MOST as usize);
    let on_its_way = |of: ActOnItsWay| OnItsWay {
        number: of.number,
        actor: show::line(&of.actor),
        act: show::line(&of.act),
        what: show::short(&of.what, 300),
        since: show::span(Duration::from_secs_f64(of.seconds)),
    };
    let on_their_way = app.door.acts.list(&app.name).into_iter().map(on_its_way).collect();
    write(&AuditPage { frame, on_their_way, rows: found.iter().map(row).collect(), next })
}
