//! Facts by name, as SQL says them, and how people read them.

use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde_json::{Map, Value};

use crate::{
    define::{JobId, JobState},
    schema::Store,
};

/// The facts of a cause, or of a job.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a>(pub(super) &'a Map<String, Value>);

/// What is looked at: which job, when, and where it was.
pub(super) struct Look<'a> {
    pub(super) store: Store,
    pub(super) job: JobId,
    pub(super) at: DateTime<Utc>,
    pub(super) state: Option<JobState>,
    pub(super) of_job: Option<Facts<'a>>,
}

impl<'a> Facts<'a> {
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    pub(super) fn number(self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        value.as_i64().or_else(|| value.as_f64().map(|number| number as i64))
    }

    pub(super) fn float(self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    pub(super) fn is(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool) == Some(true)
    }

    pub(super) fn time(self, name: &str) -> Option<DateTime<Utc>> {
        DateTime::parse_from_rfc3339(self.text(name)?).ok().map(|time| time.to_utc())
    }

    pub(super) fn of(self, name: &str) -> Option<Facts<'a>> {
        self.0.get(name)?.as_object().map(Facts)
    }

    pub(super) fn each(self, name: &str) -> impl Iterator<Item = Facts<'a>> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).map(Facts)
    }

    /// The texts of a list.
    pub(super) fn texts(self, name: &str) -> Vec<&'a str> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The sessions that this one waits for.
    pub(super) fn blockers(self) -> Vec<i64> {
        self.0.get("waits_for").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_i64).collect()
    }

    /// `7`, or `10000+` if that is how far was counted.
    pub(super) fn counted(self, name: &str) -> String {
        format!("{}{}", self.number(name).unwrap_or(0), if self.is("partial") { "+" } else { "" })
    }
}

impl Look<'_> {
    /// A time, and how long ago or hence that is: `2026-11-23 12:00:05Z (2m ago)`.
    pub(super) fn when(&self, time: DateTime<Utc>) -> String {
        let shown = time.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ");
        match (self.at - time).to_std() {
            Ok(ago) => format!("{shown} ({} ago)", span(ago)),
            Err(_) => format!("{shown} (in {})", span((time - self.at).to_std().unwrap_or_default())),
        }
    }

    /// The same of a fact; nothing if it is not there.
    pub(super) fn since(&self, facts: Facts<'_>, name: &str) -> String {
        facts.time(name).map_or_else(String::new, |time| format!(" since {}", self.when(time)))
    }
}

/// How long that is, as people say it: its two largest units.
pub(super) fn span(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    let text = humantime(span.as_secs());
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn humantime(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut parts: Vec<String> = Vec::new();
    let mut rest = seconds;
    for (unit, size) in units {
        if rest >= size && parts.len() < 2 {
            parts.push(format!("{}{unit}", rest / size));
        }
        rest %= size;
    }
    parts.join(" ")
}

/// Ms as a span; what cannot be one is none.
pub(super) fn ms(ms: f64) -> String {
    span(Duration::try_from_secs_f64(ms.max(0.0) / 1000.0).unwrap_or_default())
}
