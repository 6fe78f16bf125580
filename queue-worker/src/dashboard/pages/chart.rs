//! Charts, drawn here, so that they are there without scripts: attempts as bars, waits as lines. Pure: figures in, numbers of a picture out.

use std::{fmt::Write as _, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::operate::Figures;

use crate::dashboard::show;

/// The picture's size, and where the lowest bar stands.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 150.0;
const GROUND: f64 = HEIGHT - 18.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;

/// What a page draws.
pub(super) struct Chart {
    pub(super) bars: Vec<Bar>,
    pub(super) lines: Vec<Line>,
    /// The most attempts of a step, and the longest wait, as the axes say.
    pub(super) most: String,
    pub(super) longest: String,
    /// Times below, with their places.
    pub(super) times: Vec<(String, String)>,
    /// What is to be seen, for those who do not see it.
    pub(super) says: String,
    pub(super) is_empty: bool,
}

/// A rectangle.
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) says: String,
}

/// A line through points.
pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) points: String,
}

/// Of the steps of this time up to then.
pub(super) fn chart(steps: &[Figures], until: DateTime<Utc>, span: Duration) -> Chart {
    let from = until - span;
    let share = |at: DateTime<Utc>| (at - from).as_seconds_f64() / span.as_secs_f64();
    let x = |at: DateTime<Utc>| LEFT + share(at).clamp(0.0, 1.0) * (WIDTH - LEFT);
    let ended = |of: &Figures| of.completed + of.failed();
    let most = steps.iter().map(ended).max().unwrap_or(0).max(1);
    let waits = |of: &Figures, share: f64| of.start.quantile(share).map(|wait| wait.as_secs_f64() * 1000.0);
    let longest = steps.iter().filter_map(|of| waits(of, 0.99)).fold(1.0_f64, f64::max);
    // By the logarithm: milliseconds and minutes are in one picture.
    let level = |ms: f64| GROUND - (ms.max(1.0).ln() / longest.max(10.0).ln()).clamp(0.0, 1.0) * (GROUND - TOP);
    let line = |class: &'static str, share: f64| {
        let point = |of: &Figures| {
            let high = level(waits(of, share)?);
            Some(format!("{:.1},{high:.1} {:.1},{high:.1}", x(of.at), x(of.at + of.lasted)))
        };
        Line { class, points: steps.iter().filter_map(point).collect::<Vec<_>>().join(" ") }
    };
    let sum = |of: fn(&Figures) -> u64| steps.iter().map(of).sum::<u64>();
    Chart {
        bars: steps.iter().flat_map(|of| bars(of, &x, most)).collect(),
        lines: vec![line("p50", 0.5), line("p95", 0.95), line("p99", 0.99)],
        most: show::count(most as i64, false),
        longest: show::span(Duration::from_secs_f64(longest.max(10.0) / 1000.0)),
        times: times(from, span, &x),
        says: format!("{} completed and {} failed in {} steps", sum(|of| of.completed), sum(Figures::failed), steps.len()),
        is_empty: steps.iter().all(|of| ended(of) == 0),
    }
}

/// What failed stands on what completed.
fn bars(of: &Figures, x: &impl Fn(DateTime<Utc>) -> f64, most: u64) -> [Bar; 2] {
    let (left, right) = (x(of.at), x(of.at + of.lasted));
    let height = |jobs: u64| jobs as f64 / most as f64 * (GROUND - TOP);
    let mut ground = GROUND;
    [("completed", of.completed), ("failed", of.failed())].map(|(class, jobs)| {
        ground -= height(jobs);
        let mut says = of.at.format("%Y-%m-%d %H:%MZ").to_string();
        // Writing to a string cannot fail.
        let _ = write!(says, ": {} {class}", show::count(jobs as i64, false));
        Bar {
            class,
            x: format!("{left:.1}"),
            y: format!("{ground:.1}"),
            width: format!("{:.1}", (right - left - 1.0).max(1.0)),
            height: format!("{:.1}", height(jobs)),
            says,
        }
    })
}

/// Five times, evenly.
fn times(from: DateTime<Utc>, span: Duration, x: &impl Fn(DateTime<Utc>) -> f64) -> Vec<(String, String)> {
    let form = if span > Duration::from_hours(48) { "%m-%d" } else { "%H:%M" };
    let at = |nth: u32| from + span / 4 * nth;
    (0..4).map(|nth| (format!("{:.1}", x(at(nth))), at(nth).format(form).to_string())).collect()
}
