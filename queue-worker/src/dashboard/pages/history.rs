//! The past: charts of what came of attempts and of how long jobs waited, and a table by queue and type.

use std::time::Duration;

use askama::Template;
use axum::{extract::State, response::Html};
use queue_core::operate::Figures;

use super::{
    chart::{Chart, chart},
    frame::{Frame, page as write},
};
use crate::dashboard::{
    api::{Asked, AskedHistory, figures},
    app::Shared,
    problem::Answer,
    show,
};

#[derive(Template)]
#[template(path = "history.html")]
struct HistoryPage {
    frame: Frame,
    spans: Vec<SpanLink>,
    of: Option<String>,
    chart: Chart,
    rows: Vec<Row>,
    left_out: u32,
}

/// A part of the past that can be chosen.
struct SpanLink {
    name: &'static str,
    at: String,
    is_shown: bool,
}

/// A queue and type, or all of them.
struct Row {
    queue: String,
    job_type: String,
    numbers: Vec<String>,
}

/// How far back, what that is called, and in which steps.
const SPANS: [(&str, &str, &str, u64); 4] =
    [("1h", "hour", "1m", 3600), ("24h", "day", "30m", 86_400), ("7d", "week", "4h", 604_800), ("30d", "30 days", "1d", 2_592_000)];

/// So many queues and types are shown.
const MOST: usize = 100;

impl Row {
    fn new(of: &Figures) -> Self {
        let count = |number: u64| show::count(number as i64, false);
        let ms = |duration: Option<Duration>| duration.map_or_else(|| "–".to_owned(), show::span);
        let times = [&of.run, &of.start].map(|of| [0.5, 0.95, 0.99].map(|share| ms(of.quantile(share)))).concat();
        let counts = [count(of.completed), count(of.retried), count(of.dead), format!("{:.1}", of.rate())];
        Self {
            queue: show::line(of.queue.as_deref().unwrap_or("all")),
            job_type: show::line(of.job_type.as_deref().unwrap_or_default()),
            numbers: counts.into_iter().chain(times).collect(),
        }
    }
}

pub(super) async fn page(State(app): State<Shared>, frame: Frame, Asked(asked): Asked<AskedHistory>) -> Answer<Html<String>> {
    let (last, _, step, seconds) = SPANS.into_iter().find(|span| asked.last.as_deref() == Some(span.0)).unwrap_or(SPANS[0]);
    let whole = AskedHistory { last: Some(last.to_owned()), step: None, apart: Some(false), ..asked };
    let steps = figures(&app, &AskedHistory { step: Some(step.to_owned()), ..whole.clone() }).await?;
    let sum = figures(&app, &whole).await?;
    let mut apart = figures(&app, &AskedHistory { apart: Some(true), ..whole.clone() }).await?;
    apart.sort_by_key(|of| std::cmp::Reverse(of.attempts()));
    let names = [("queue", &whole.queue), ("type", &whole.job_type)];
    let of: Vec<String> = names.iter().filter_map(|(key, name)| Some(format!("{key} {}", show::line(name.as_deref()?)))).collect();
    let only: String = names.iter().filter_map(|(key, name)| Some(format!("&{key}={}", show::in_address(name.as_deref()?)))).collect();
    let link = |(span, name, ..): (&'static str, &'static str, &str, u64)| SpanLink {
        name,
        at: format!("{}/history?last={span}{only}", frame.base),
        is_shown: span == last,
    };
    let until = sum.first().map_or_else(chrono::DateTime::default, |of| of.at + of.lasted);
    write(&HistoryPage {
        spans: SPANS.map(link).into(),
        of: (!of.is_empty()).then(|| of.join(", ")),
        chart: chart(&steps, until, Duration::from_secs(seconds)),
        left_out: apart.first().map_or(0, |of| of.left_out) + apart.len().saturating_sub(MOST) as u32,
        rows: sum.iter().chain(apart.iter().take(MOST)).map(Row::new).collect(),
        frame,
    })
}
