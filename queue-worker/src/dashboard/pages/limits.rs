//! Limits page, with permits in use, waiting jobs, and the busiest keys of keyed limits.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::{
    Queue,
    operate::{LimitKey, LimitStatus},
};

use super::frame::{Frame, render};
use crate::dashboard::{app::AppState, display, problem::HandlerResult};

#[derive(Template)]
#[template(path = "limits.html")]
struct LimitsPage {
    frame: Frame,
    limits: Vec<LimitStatusRow>,
    more: usize,
}

struct LimitStatusRow {
    name: String,
    path: String,
    concurrency: Option<u32>,
    rate: Option<String>,
    used: i64,
    waiting: String,
    by_operator: bool,
    source: String,
    keyed: bool,
    keys: Vec<[String; 3]>,
}

/// Maximum number of limits on the page.
const MAX_SHOWN: usize = 100;

/// Maximum number of keyed limits whose keys are shown. Loading the keys requires a separate statement for each limit.
const MAX_KEYED: usize = 8;

impl LimitStatusRow {
    fn new(of: &LimitStatus, keys: &[LimitKey]) -> Self {
        let figures = &of.figures;
        let rate = figures.starts.zip(figures.period()).map(|(starts, period)| {
            let burst = figures.burst.map_or_else(String::new, |burst| format!(", burst {burst}"));
            format!("{starts} in {}{burst}", display::duration(period))
        });
        let key = |key: &LimitKey| {
            let name = key
                .key
                .clone()
                .unwrap_or_else(|| if key.fair_id == 0 { "(no key)".to_owned() } else { format!("fair queue {}", key.fair_id) });
            [display::truncate(&name, 80), key.used.to_string(), display::count(key.waiting, key.partial)]
        };
        let reason = of.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
        Self {
            name: display::line(&of.name),
            path: display::percent_encode(&of.name),
            concurrency: figures.concurrency,
            rate,
            used: of.used,
            waiting: display::count(of.waiting, of.partial),
            by_operator: of.by_operator,
            source: if of.by_operator { display::truncate(&format!("set by {}{reason}", of.set_by), 200) } else { "code".to_owned() },
            keyed: of.keyed,
            keys: keys.iter().map(key).collect(),
        }
    }
}

pub(super) async fn page(State(app): State<AppState>, frame: Frame) -> HandlerResult<Html<String>> {
    let mut session = app.begin_read().await?;
    let found = Queue::on(&mut session).store(app.store).limits().await?;
    let (mut limits, mut left) = (Vec::new(), MAX_KEYED);
    for of in found.iter().take(MAX_SHOWN) {
        let is_shown = of.keyed && left > 0;
        left -= usize::from(is_shown);
        let keys = if is_shown { Queue::on(&mut session).store(app.store).limit_keys(&of.name).await? } else { Vec::new() };
        limits.push(LimitStatusRow::new(of, &keys));
    }
    drop(session);
    render(&LimitsPage { frame, more: found.len().saturating_sub(MAX_SHOWN), limits })
}
