//! Schedules page, with the next tick of each schedule and the outcome of its latest tick.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    Queue,
    schedule::{self, ScheduleRecord},
};

use super::frame::{Frame, render};
use crate::dashboard::{
    app::AppState,
    display::{self, Moment},
    problem::HandlerResult,
};

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    frame: Frame,
    schedules: Vec<ScheduleRow>,
    more: usize,
}

struct ScheduleRow {
    name: String,
    path: String,
    job_type: String,
    timing: String,
    next: Option<Moment>,
    skips: Option<Moment>,
    is_paused: bool,
    is_withdrawn: bool,
    problem: Option<String>,
    last: Option<LastTick>,
}

struct LastTick {
    tick: Moment,
    outcome: String,
    job: Option<String>,
}

/// Maximum number of schedules on the page.
const MAX_SHOWN: usize = 200;

impl ScheduleRow {
    fn new(of: &ScheduleRecord) -> Self {
        let moment = |at| Moment::new(at, of.now);
        let every = of.every.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
        let timing = match (&of.cron, every) {
            (Some(cron), _) => format!("{cron} {}", of.tz),
            (None, Some(every)) => format!("every {}", display::duration(every)),
            (None, None) => String::new(),
        };
        let last = |fire: &schedule::TickRecord| LastTick {
            tick: moment(fire.tick),
            outcome: display::line(&fire.outcome),
            job: fire.job.map(|job| job.to_string()),
        };
        Self {
            name: display::line(&of.name),
            path: display::percent_encode(&of.name),
            job_type: display::line(&of.job_type),
            timing: display::line(&timing),
            next: of.next(1).first().copied().map(moment),
            skips: of.skip_at.map(moment),
            is_paused: of.paused_at.is_some(),
            is_withdrawn: of.withdrawn_at.is_some(),
            problem: of.error.as_deref().map(|error| display::truncate(error, 200)),
            last: of.last.as_ref().map(last),
        }
    }
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let found = Queue::on(&mut *app.begin_read().await?).store(app.store).schedules().await?;
    render(&SchedulesPage {
        frame,
        more: found.len().saturating_sub(MAX_SHOWN),
        schedules: found.iter().take(MAX_SHOWN).map(ScheduleRow::new).collect(),
    })
}
