//! Limits, what they leave room for, and the keys that stand.

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::operate::{self, LimitKey, LimitStatus};

use super::frame::{Frame, page as write};
use crate::dashboard::{app::Shared, problem::Answer, show};

#[derive(Template)]
#[template(path = "limits.html")]
struct LimitsPage {
    frame: Frame,
    limits: Vec<Row>,
    more: usize,
}

struct Row {
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

/// So many limits are shown.
const MOST: usize = 100;

/// Of so many limits by key the keys are shown: each takes a statement.
const KEYED: usize = 8;

impl Row {
    fn new(of: &LimitStatus, keys: &[LimitKey]) -> Self {
        let figures = &of.figures;
        let rate = figures.starts.zip(figures.period()).map(|(starts, period)| {
            let burst = figures.burst.map_or_else(String::new, |burst| format!(", {burst} at once"));
            format!("{starts} in {}{burst}", show::span(period))
        });
        let key = |key: &LimitKey| {
            let name = key.key.clone().unwrap_or_else(|| if key.line == 0 { "(no key)".to_owned() } else { format!("line {}", key.line) });
            [show::short(&name, 80), key.used.to_string(), show::count(key.waiting, key.partial)]
        };
        let reason = of.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
        Self {
            name: show::line(&of.name),
            path: show::in_address(&of.name),
            concurrency: figures.concurrency,
            rate,
            used: of.used,
            waiting: show::count(of.waiting, of.partial),
            by_operator: of.by_operator,
            source: if of.by_operator { show::short(&format!("set by {}{reason}", of.set_by), 200) } else { "code".to_owned() },
            keyed: of.keyed,
            keys: keys.iter().map(key).collect(),
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame) -> Answer<Html<String>> {
    let mut session = app.look().await?;
    let found = operate::limits(&mut *session, app.store).await?;
    let (mut limits, mut left) = (Vec::new(), KEYED);
    for of in found.iter().take(MOST) {
        let is_shown = of.keyed && left > 0;
        left -= usize::from(is_shown);
        let keys = if is_shown { operate::limit_keys(&mut *session, app.store, &of.name).await? } else { Vec::new() };
        limits.push(Row::new(of, &keys));
    }
    drop(session);
    write(&LimitsPage { frame, more: found.len().saturating_sub(MOST), limits })
}
