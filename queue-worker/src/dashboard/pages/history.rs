//! History page. Charts show attempt outcomes, start latencies and run times. A table lists the statistics by queue and job type.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::operate::AttemptStatistics;

use super::{
    chart::Charts,
    frame::{Frame, render},
};
use crate::dashboard::{
    api::{HistoryQuery, QueryParams, load_history},
    app::AppState,
    display,
    problem::HandlerResult,
};

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    spans: Vec<SpanLink>,
    of: Option<String>,
    charts: Charts,
    rows: Vec<HistoryRow>,
    left_out: u32,
}

/// Link that selects the period to show.
struct SpanLink {
    name: &'static str,
    at: String,
    is_shown: bool,
}

/// Table row for one pair of queue and job type, or for all pairs together.
struct HistoryRow {
    queue: String,
    job_type: String,
    numbers: Vec<String>,
}

/// Selectable periods: `last` parameter, label, step length, and period in seconds.
const SPANS: [(&str, &str, &str, u64); 4] =
    [("1h", "hour", "1m", 3600), ("24h", "day", "30m", 86_400), ("7d", "week", "4h", 604_800), ("30d", "30 days", "1d", 2_592_000)];

/// Maximum number of queue and type pairs in the table.
const MAX_SHOWN: usize = 100;

impl HistoryRow {
    fn new(of: &AttemptStatistics) -> Self {
        let count = |number: u64| display::count(number as i64, false);
        let ms = |duration: Option<Duration>| duration.map_or_else(|| "–".to_owned(), display::duration);
        let times = [&of.run, &of.start].map(|of| [0.5, 0.95, 0.99].map(|share| ms(of.quantile(share)))).concat();
        let counts = [count(of.completed), count(of.retried), count(of.dead), format!("{:.1}", of.rate())];
        Self {
            queue: display::line(of.queue.as_deref().unwrap_or("all")),
            job_type: display::line(of.job_type.as_deref().unwrap_or_default()),
            numbers: counts.into_iter().chain(times).collect(),
        }
    }
}

pub(super) async fn page(
    State(app): State<AppState>,
    frame: Frame,
    QueryParams(query): QueryParams<HistoryQuery>,
) -> HandlerResult<Html<String>> {
    let (last, _, step, seconds) = SPANS.into_iter().find(|span| query.last.as_deref() == Some(span.0)).unwrap_or(SPANS[0]);
    let whole = HistoryQuery { last: Some(last.to_owned()), step: None, apart: Some(false), ..query };
    let steps = load_history(&app, &HistoryQuery { step: Some(step.to_owned()), ..whole.clone() }).await?;
    let sum = load_history(&app, &whole).await?;
    let mut apart = load_history(&app, &HistoryQuery { apart: Some(true), ..whole.clone() }).await?;
    apart.sort_by_key(|of| std::cmp::Reverse(of.attempts()));
    let names = [("queue", &whole.queue), ("type", &whole.job_type)];
    let of: Vec<String> = names.iter().filter_map(|(key, name)| Some(format!("{key} {}", display::line(name.as_deref()?)))).collect();
    let only: String =
        names.iter().filter_map(|(key, name)| Some(format!("&{key}={}", display::percent_encode(name.as_deref()?)))).collect();
    let link = |(span, name, ..): (&'static str, &'static str, &str, u64)| SpanLink {
        name,
        at: format!("{}/history?last={span}{only}", frame.base),
        is_shown: span == last,
    };
    let until = sum.first().map_or_else(chrono::DateTime::default, |of| of.at + of.lasted);
    render(&HistoryPage {
        spans: SPANS.map(link).into(),
        of: (!of.is_empty()).then(|| of.join(", ")),
        charts: Charts::new(&steps, until, Duration::from_secs(seconds), 960),
        left_out: apart.first().map_or(0, |of| of.left_out) + apart.len().saturating_sub(MAX_SHOWN) as u32,
        rows: sum.iter().chain(apart.iter().take(MAX_SHOWN)).map(HistoryRow::new).collect(),
        frame,
    })
}
