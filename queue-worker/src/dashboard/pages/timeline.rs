//! Layout of the timeline, which shows when each step of a durable job ran or waited. Performs no I/O.

use chrono::{DateTime, TimeDelta, Utc};
use queue_core::operate::JobStep;

use crate::dashboard::display;

/// Maximum number of steps in a timeline. The table next to the timeline lists up to a thousand steps.
const MAX_STEPS: usize = 100;

const WIDTH: f64 = 960.0;
const NAME_WIDTH: f64 = 190.0;
const ROW_HEIGHT: usize = 18;
const MAX_NAME: usize = 28;

pub(super) struct Timeline {
    pub(super) rows: Vec<TimelineBar>,
    pub(super) height: usize,
    pub(super) from: String,
    pub(super) until: String,
    /// Text alternative to the timeline for screen readers.
    pub(super) label: String,
}

pub(super) struct TimelineBar {
    pub(super) name: String,
    /// Y coordinate of the text baseline for the step's name.
    pub(super) text_y: usize,
    pub(super) class: &'static str,
    pub(super) x: String,
    pub(super) y: usize,
    pub(super) width: String,
    pub(super) label: String,
}

/// Lays out the timeline of a job's steps. Returns `None` for fewer than two steps.
pub(super) fn timeline(steps: &[JobStep], now: DateTime<Utc>) -> Option<Timeline> {
    let steps = &steps[..steps.len().min(MAX_STEPS)];
    if steps.len() < 2 {
        return None;
    }
    let spans: Vec<_> = steps.iter().map(|step| span(step, now)).collect();
    let from = spans.iter().map(|(from, _)| *from).min()?;
    let until = spans.iter().map(|(_, until)| *until).max()?.max(from + TimeDelta::milliseconds(1));
    let share = |at: DateTime<Utc>| (at - from).as_seconds_f64() / (until - from).as_seconds_f64();
    let x = |at: DateTime<Utc>| NAME_WIDTH + share(at).clamp(0.0, 1.0) * (WIDTH - NAME_WIDTH);
    let rows = steps.iter().zip(&spans).enumerate().map(|(nth, (step, (begun, ended)))| {
        let name = display::line(step.waits_for().unwrap_or(&step.name));
        let took = display::duration((*ended - *begun).to_std().unwrap_or_default());
        let class = if step.until.is_some() { "waited" } else { "done" };
        TimelineBar {
            label: format!("{name}: {} {took}", if step.until.is_some() { "waits" } else { "took" }),
            name: display::truncate(&name, MAX_NAME),
            text_y: nth * ROW_HEIGHT + 13,
            class,
            x: format!("{:.1}", x(*begun)),
            y: nth * ROW_HEIGHT + 3,
            width: format!("{:.1}", (x(*ended) - x(*begun)).max(2.0)),
        }
    });
    let (rows, form) = (rows.collect::<Vec<_>>(), if until - from > TimeDelta::days(1) { "%Y-%m-%d %H:%MZ" } else { "%H:%M:%SZ" });
    Some(Timeline {
        height: rows.len() * ROW_HEIGHT + 18,
        label: format!("{} steps from {} to {}", rows.len(), from.format(form), until.format(form)),
        from: from.format(form).to_string(),
        until: until.format(form).to_string(),
        rows,
    })
}

/// Returns the start and end of a step's run or wait. A wait in progress ends at `now`.
fn span(step: &JobStep, now: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
    match step.until {
        Some(until) if !step.is_timed_out() => (step.at, until.min(now).max(step.at)),
        Some(until) => (until.min(step.at), step.at),
        None => (step.at - TimeDelta::milliseconds(i64::from(step.ran_ms.max(0))), step.at),
    }
}
