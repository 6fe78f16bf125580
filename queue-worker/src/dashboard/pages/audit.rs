//! Audit log page. Also lists the bulk operations in progress.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{Queue, operate};

use super::frame::{Frame, render};
use crate::dashboard::{
    api::{AuditQuery, QueryParams},
    app::AppState,
    display::{self, Moment},
    operations::BulkOperationStatus,
    problem::HandlerResult,
};

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    /// Bulk operations that this process is running in the store.
    in_progress: Vec<OperationRow>,
    rows: Vec<AuditRow>,
    next: Option<i64>,
}

struct OperationRow {
    number: u64,
    actor: String,
    act: String,
    what: String,
    since: String,
}

struct AuditRow {
    at: Moment,
    actor: String,
    role: String,
    act: String,
    what: String,
    jobs: String,
}

/// Maximum number of audit log entries on a page.
const MAX_SHOWN: u32 = 100;

pub(super) async fn page(
    State(app): State<AppState>,
    frame: Frame,
    QueryParams(query): QueryParams<AuditQuery>,
) -> HandlerResult<Html<String>> {
    let mut session = app.begin_read().await?;
    let now = Queue::on(&mut session).store(app.store).now().await?;
    let found = Queue::on(&mut session).store(app.store).audit(query.before, MAX_SHOWN).await?;
    drop(session);
    let row = |of: &operate::AuditRecord| AuditRow {
        at: Moment::new(of.at, now),
        actor: display::line(&of.actor),
        role: display::line(&of.role),
        act: display::line(&of.act),
        what: display::truncate(&of.what, 300),
        jobs: if of.jobs == 0 { String::new() } else { display::count(of.jobs, false) },
    };
    let next = found.last().map(|last| last.id).filter(|_| found.len() >= MAX_SHOWN as usize);
    let operation_row = |of: BulkOperationStatus| OperationRow {
        number: of.number,
        actor: display::line(&of.actor),
        act: display::line(&of.act),
        what: display::truncate(&of.what, 300),
        since: display::duration(Duration::from_secs_f64(of.seconds)),
    };
    let in_progress = app.dashboard.operations.list(&app.name).into_iter().map(operation_row).collect();
    render(&AuditPage { frame, in_progress, rows: found.iter().map(row).collect(), next })
}
