//! The steps of a durable job as a picture: when each was done, and how long it took or waits. Pure: steps in, numbers of a picture out.

use chrono::{DateTime, TimeDelta, Utc};
use queue_core::operate::JobStep;

use crate::dashboard::show;

/// The first ones; the table has a thousand.
const MOST: usize = 100;

const WIDTH: f64 = 960.0;
const NAMES: f64 = 190.0;
const ROW: usize = 18;
const LETTERS: usize = 28;

pub(super) struct Timeline {
    pub(super) rows: Vec<Row>,
    pub(super) height: usize,
    pub(super) from: String,
    pub(super) until: String,
    /// What is to be seen, for those who do not see it.
    pub(super) says: String,
}

pub(super) struct Row {
    pub(super) name: String,
    /// Where the name stands.
    pub(super) base: usize,
    pub(super) class: &'static str,
    pub(super) x: String,
    pub(super) y: usize,
    pub(super) width: String,
    pub(super) says: String,
}

/// None of fewer than two steps: that is no picture.
pub(super) fn timeline(steps: &[JobStep], now: DateTime<Utc>) -> Option<Timeline> {
    let steps = &steps[..steps.len().min(MOST)];
    if steps.len() < 2 {
        return None;
    }
    let spans: Vec<_> = steps.iter().map(|step| span(step, now)).collect();
    let from = spans.iter().map(|(from, _)| *from).min()?;
    let until = spans.iter().map(|(_, until)| *until).max()?.max(from + TimeDelta::milliseconds(1));
    let share = |at: DateTime<Utc>| (at - from).as_seconds_f64() / (until - from).as_seconds_f64();
    let x = |at: DateTime<Utc>| NAMES + share(at).clamp(0.0, 1.0) * (WIDTH - NAMES);
    let rows = steps.iter().zip(&spans).enumerate().map(|(nth, (step, (begun, ended)))| {
        let name = show::line(step.waits_for().unwrap_or(&step.name));
        let took = show::span((*ended - *begun).to_std().unwrap_or_default());
        let class = if step.until.is_some() { "waited" } else { "done" };
        Row {
            says: format!("{name}: {} {took}", if step.until.is_some() { "waits" } else { "took" }),
            name: show::short(&name, LETTERS),
            base: nth * ROW + 13,
            class,
            x: format!("{:.1}", x(*begun)),
            y: nth * ROW + 3,
            width: format!("{:.1}", (x(*ended) - x(*begun)).max(2.0)),
        }
    });
    let (rows, form) = (rows.collect::<Vec<_>>(), if until - from > TimeDelta::days(1) { "%Y-%m-%d %H:%MZ" } else { "%H:%M:%SZ" });
    Some(Timeline {
        height: rows.len() * ROW + 18,
        says: format!("{} steps from {} to {}", rows.len(), from.format(form), until.format(form)),
        from: from.format(form).to_string(),
        until: until.format(form).to_string(),
        rows,
    })
}

/// From when to when it was at work; a wait from its beginning to its end, or till now.
fn span(step: &JobStep, now: DateTime<Utc>) -> (DateTime<Utc>, DateTime<Utc>) {
    match step.until {
        Some(until) if !step.is_timed_out() => (step.at, until.min(now).max(step.at)),
        Some(until) => (until.min(step.at), step.at),
        None => (step.at - TimeDelta::milliseconds(i64::from(step.ran_ms.max(0))), step.at),
    }
}
