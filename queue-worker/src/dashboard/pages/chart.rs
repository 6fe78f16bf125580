//! Layout of the dashboard's charts, which show attempts as bars and durations as lines. The charts are rendered on the server, without
//! scripts. This module performs no I/O.

use std::{fmt::Write as _, time::Duration};

use chrono::{DateTime, Utc};
use queue_core::operate::{AttemptStatistics, Histogram};

use crate::dashboard::display;

/// Height of a chart in SVG units.
pub(super) const HEIGHT: f64 = 100.0;
pub(super) const BASELINE: f64 = HEIGHT - 4.0;
/// Width of the vertical axis labels in SVG units.
pub(super) const LEFT: f64 = 72.0;
pub(super) const TOP: f64 = 6.0;
/// Minimum height of a bar, so that one failed attempt among many others is visible.
const MIN_BAR: f64 = 1.5;

/// Charts of one period, one below the other, with a common time axis.
pub(super) struct Charts {
    /// Width of the charts in SVG units.
    pub(super) width: u32,
    pub(super) attempts: AttemptChart,
    pub(super) start: DurationChart,
    pub(super) run: DurationChart,
    /// X coordinates and texts of the labels on the time axis.
    pub(super) times: Vec<(String, String)>,
    pub(super) is_empty: bool,
}

/// Completed and failed attempts of each time step, as stacked bars.
pub(super) struct AttemptChart {
    pub(super) bars: Vec<Bar>,
    /// Label at the top of the vertical axis: the maximum number of attempts per step.
    pub(super) most: String,
    /// Text alternative to the chart for screen readers.
    pub(super) label: String,
}

/// Percentiles of a duration over time, as lines on a logarithmic scale.
pub(super) struct DurationChart {
    pub(super) lines: Vec<StepLine>,
    /// Label at the top of the vertical axis: the largest 99th percentile, but at least [`MIN_TOP`].
    pub(super) longest: String,
    /// Text alternative to the chart for screen readers.
    pub(super) label: String,
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

/// Line of a chart, as SVG path commands.
pub(super) struct StepLine {
    pub(super) class: &'static str,
    pub(super) path: String,
}

/// CSS class and quantile of each line in a duration chart.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// Minimum value at the top of a duration chart's vertical axis, in milliseconds.
const MIN_TOP: f64 = 10.0;

/// Horizontal time axis of the charts. Covers the period of length `span` that starts at `from`.
struct TimeAxis {
    from: DateTime<Utc>,
    span: Duration,
    width: f64,
}

impl Charts {
    /// Lays out charts of `steps`. The time axis has the length `span` and ends at `until`.
    pub(super) fn new(steps: &[AttemptStatistics], until: DateTime<Utc>, span: Duration, width: u32) -> Self {
        let axis = TimeAxis { from: until - span, span, width: width.into() };
        Self {
            width,
            attempts: AttemptChart::new(steps, &axis),
            start: DurationChart::new("Start latency", steps, |of| &of.start, &axis),
            run: DurationChart::new("Run time", steps, |of| &of.run, &axis),
            times: axis.times(),
            is_empty: steps.iter().all(|of| of.attempts() == 0),
        }
    }
}

impl TimeAxis {
    fn x(&self, at: DateTime<Utc>) -> f64 {
        let share = (at - self.from).as_seconds_f64() / self.span.as_secs_f64();
        LEFT + share.clamp(0.0, 1.0) * (self.width - LEFT)
    }

    /// Returns four evenly spaced labels with their X coordinates.
    fn times(&self) -> Vec<(String, String)> {
        let form = if self.span > Duration::from_hours(48) { "%m-%d" } else { "%H:%MZ" };
        let at = |nth: u32| self.from + self.span / 4 * nth;
        (0..4).map(|nth| (format!("{:.1}", self.x(at(nth))), at(nth).format(form).to_string())).collect()
    }
}

impl AttemptChart {
    fn new(steps: &[AttemptStatistics], axis: &TimeAxis) -> Self {
        let most = steps.iter().map(|of| of.completed + of.failed()).max().unwrap_or(0).max(1);
        let sum = |of: fn(&AttemptStatistics) -> u64| steps.iter().map(of).sum::<u64>();
        Self {
            bars: steps.iter().flat_map(|of| bars(of, axis, most)).collect(),
            most: display::count(most as i64, false),
            label: format!("Attempts: {} completed, {} failed", sum(|of| of.completed), sum(AttemptStatistics::failed)),
        }
    }
}

/// Returns the bars of one time step: a bar for completed attempts, and a bar for failed attempts stacked on it. A count of zero has no
/// bar.
fn bars(of: &AttemptStatistics, axis: &TimeAxis, most: u64) -> impl Iterator<Item = Bar> {
    let (left, right) = (axis.x(of.at), axis.x(of.at + of.lasted));
    let mut baseline = BASELINE;
    let shown = [("completed", of.completed), ("failed", of.failed())].into_iter().filter(|(_, jobs)| *jobs > 0);
    shown.map(move |(class, jobs)| {
        let height = (jobs as f64 / most as f64 * (BASELINE - TOP)).max(MIN_BAR);
        baseline -= height;
        Bar {
            class,
            x: format!("{left:.1}"),
            y: format!("{baseline:.1}"),
            width: format!("{:.1}", (right - left - 1.0).max(1.0)),
            height: format!("{height:.1}"),
            label: format!("{}: {} {class}", of.at.format("%Y-%m-%d %H:%MZ"), display::count(jobs as i64, false)),
        }
    })
}

impl DurationChart {
    fn new(name: &str, steps: &[AttemptStatistics], of: fn(&AttemptStatistics) -> &Histogram, axis: &TimeAxis) -> Self {
        let percentile = |step: &AttemptStatistics, share: f64| of(step).quantile(share).map(|found| found.as_secs_f64() * 1000.0);
        let longest = steps.iter().filter_map(|step| percentile(step, 0.99)).reduce(f64::max);
        let top = longest.unwrap_or_default().max(MIN_TOP);
        // Uses a logarithmic scale, so that both milliseconds and minutes are visible.
        let level = |ms: f64| BASELINE - (ms.max(1.0).ln() / top.ln()).clamp(0.0, 1.0) * (BASELINE - TOP);
        let line = |(class, share): (&'static str, f64)| {
            let (mut path, mut reached) = (String::new(), None);
            for (step, ms) in steps.iter().filter_map(|step| Some((step, percentile(step, share)?))) {
                // A gap between two steps has no values, so the line is interrupted there.
                let command = if reached == Some(step.at) { 'L' } else { 'M' };
                let until = step.at + step.lasted;
                // Writing to a string cannot fail.
                let _ = write!(path, "{command}{:.1} {:.1}H{:.1}", axis.x(step.at), level(ms), axis.x(until));
                reached = Some(until);
            }
            StepLine { class, path }
        };
        let label = |ms: f64| display::duration(Duration::from_secs_f64(ms / 1000.0));
        Self {
            lines: PERCENTILES.map(line).into(),
            label: longest.map_or_else(|| format!("{name}: no values"), |ms| format!("{name}: 99th percentile of at most {}", label(ms))),
            longest: label(top),
        }
    }
}
