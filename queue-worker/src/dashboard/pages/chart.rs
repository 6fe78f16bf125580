//! Charts with attempts as bars and start latencies as lines, rendered on the server without scripts. Maps statistics to coordinates.
//! Performs no I/O.

use std::{fmt::Write as _, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::operate::AttemptStatistics;

use crate::dashboard::display;

/// Width of the chart in SVG units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 150.0;
const BASELINE: f64 = HEIGHT - 18.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;

/// Elements of a chart with their coordinates.
pub(super) struct Chart {
    pub(super) bars: Vec<Bar>,
    pub(super) lines: Vec<Polyline>,
    /// Labels at the top of the vertical axes. `most` is the maximum number of attempts per time step, and `longest` is the maximum
    /// latency.
    pub(super) most: String,
    pub(super) longest: String,
    /// X coordinates and texts of the labels on the time axis.
    pub(super) times: Vec<(String, String)>,
    /// Text alternative to the chart for screen readers.
    pub(super) label: String,
    pub(super) is_empty: bool,
}

/// Rectangle of a bar, with its tooltip.
pub(super) struct Bar {
    pub(super) class: &'static str,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) label: String,
}

/// Line of a chart, with its coordinates.
pub(super) struct Polyline {
    pub(super) class: &'static str,
    pub(super) points: String,
}

/// Lays out a chart of `steps`. The time axis has the length `span` and ends at `until`.
pub(super) fn chart(steps: &[AttemptStatistics], until: DateTime<Utc>, span: Duration) -> Chart {
    let from = until - span;
    let share = |at: DateTime<Utc>| (at - from).as_seconds_f64() / span.as_secs_f64();
    let x = |at: DateTime<Utc>| LEFT + share(at).clamp(0.0, 1.0) * (WIDTH - LEFT);
    let ended = |of: &AttemptStatistics| of.completed + of.failed();
    let most = steps.iter().map(ended).max().unwrap_or(0).max(1);
    let waits = |of: &AttemptStatistics, share: f64| of.start.quantile(share).map(|wait| wait.as_secs_f64() * 1000.0);
    let longest = steps.iter().filter_map(|of| waits(of, 0.99)).fold(1.0_f64, f64::max);
    // On a logarithmic scale, both milliseconds and minutes are visible.
    let level = |ms: f64| BASELINE - (ms.max(1.0).ln() / longest.max(10.0).ln()).clamp(0.0, 1.0) * (BASELINE - TOP);
    let line = |class: &'static str, share: f64| {
        let point = |of: &AttemptStatistics| {
            let high = level(waits(of, share)?);
            Some(format!("{:.1},{high:.1} {:.1},{high:.1}", x(of.at), x(of.at + of.lasted)))
        };
        Polyline { class, points: steps.iter().filter_map(point).collect::<Vec<_>>().join(" ") }
    };
    let sum = |of: fn(&AttemptStatistics) -> u64| steps.iter().map(of).sum::<u64>();
    Chart {
        bars: steps.iter().flat_map(|of| bars(of, &x, most)).collect(),
        lines: vec![line("p50", 0.5), line("p95", 0.95), line("p99", 0.99)],
        most: display::count(most as i64, false),
        longest: display::duration(Duration::from_secs_f64(longest.max(10.0) / 1000.0)),
        times: times(from, span, &x),
        label: format!("{} completed and {} failed in {} steps", sum(|of| of.completed), sum(AttemptStatistics::failed), steps.len()),
        is_empty: steps.iter().all(|of| ended(of) == 0),
    }
}

/// Returns a bar for completed attempts and a bar for failed attempts. The second bar is stacked on the first.
fn bars(of: &AttemptStatistics, x: &impl Fn(DateTime<Utc>) -> f64, most: u64) -> [Bar; 2] {
    let (left, right) = (x(of.at), x(of.at + of.lasted));
    let height = |jobs: u64| jobs as f64 / most as f64 * (BASELINE - TOP);
    let mut baseline = BASELINE;
    [("completed", of.completed), ("failed", of.failed())].map(|(class, jobs)| {
        baseline -= height(jobs);
        let mut label = of.at.format("%Y-%m-%d %H:%MZ").to_string();
        // Writing to a string cannot fail.
        let _ = write!(label, ": {} {class}", display::count(jobs as i64, false));
        Bar {
            class,
            x: format!("{left:.1}"),
            y: format!("{baseline:.1}"),
            width: format!("{:.1}", (right - left - 1.0).max(1.0)),
            height: format!("{:.1}", height(jobs)),
            label,
        }
    })
}

/// Returns four evenly spaced labels of the time axis with their X coordinates.
fn times(from: DateTime<Utc>, span: Duration, x: &impl Fn(DateTime<Utc>) -> f64) -> Vec<(String, String)> {
    let form = if span > Duration::from_hours(48) { "%m-%d" } else { "%H:%M" };
    let at = |nth: u32| from + span / 4 * nth;
    (0..4).map(|nth| (format!("{:.1}", x(at(nth))), at(nth).format(form).to_string())).collect()
}
