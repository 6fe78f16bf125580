//! Schedules: when each ticks next, and what came of its last tick.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::schedule::{self, ScheduleRecord};

use super::frame::{Frame, page as write};
use crate::dashboard::{
    app::Shared,
    problem::Answer,
    show::{self, Moment},
};

#[derive(Template)]
#[template(path = "crons.html")]
struct CronsPage {
    frame: Frame,
    schedules: Vec<Row>,
    more: usize,
}

struct Row {
    name: String,
    path: String,
    job_type: String,
    timing: String,
    next: Option<Moment>,
    skips: Option<Moment>,
    is_paused: bool,
    is_withdrawn: bool,
    problem: Option<String>,
    last: Option<Last>,
}

struct Last {
    tick: Moment,
    outcome: String,
    job: Option<String>,
}

/// So many are shown.
const MOST: usize = 200;

impl Row {
    fn new(of: &ScheduleRecord) -> Self {
        let moment = |at| Moment::new(at, of.now);
        let every = of.every.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
        let timing = match (&of.cron, every) {
            (Some(cron), _) => format!("{cron} {}", of.tz),
            (None, Some(every)) => format!("every {}", show::span(every)),
            (None, None) => String::new(),
        };
        let last = |fire: &schedule::Fire| Last {
            tick: moment(fire.tick),
            outcome: show::line(&fire.outcome),
            job: fire.job.map(|job| job.to_string()),
        };
        Self {
            name: show::line(&of.name),
            path: show::in_address(&of.name),
            job_type: show::line(&of.job_type),
            timing: show::line(&timing),
            next: of.next(1).first().copied().map(moment),
            skips: of.skip_at.map(moment),
            is_paused: of.paused_at.is_some(),
            is_withdrawn: of.withdrawn_at.is_some(),
            problem: of.error.as_deref().map(|error| show::short(error, 200)),
            last: of.last.as_ref().map(last),
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let found = schedule::list(&mut *app.look().await?, app.store).await?;
    write(&CronsPage { frame, more: found.len().saturating_sub(MOST), schedules: found.iter().take(MOST).map(Row::new).collect() })
}
