//! Facts of a cause as returned by SQL, and their formatting for people.

use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};
use serde_json::{Map, Value};

use crate::{
    connect::KEY_HOLD,
    define::{JobId, JobState},
    schema::Store,
};

/// Facts of a cause or of a job, by name.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a>(pub(super) &'a Map<String, Value>);

/// Context of an explanation: the job, its state and facts, and the time of the query.
pub(super) struct WhyContext<'a> {
    pub(super) store: Store,
    pub(super) job: JobId,
    pub(super) at: DateTime<Utc>,
    pub(super) state: Option<JobState>,
    pub(super) job_facts: Option<Facts<'a>>,
}

impl WhyContext<'_> {
    /// Returns whether the job holds an ordering key for a tenant that is moving to this store.
    pub(super) fn holds_key(&self) -> bool {
        self.job_facts.and_then(|job| job.text("job_type")) == Some(KEY_HOLD)
    }
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

    pub(super) fn is_true(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool) == Some(true)
    }

    pub(super) fn time(self, name: &str) -> Option<DateTime<Utc>> {
        DateTime::parse_from_rfc3339(self.text(name)?).ok().map(|time| time.to_utc())
    }

    /// Returns the error of the last failed attempt.
    pub(super) fn last_error(self) -> Option<&'a str> {
        self.text("error").or_else(|| self.objects("failures").last().and_then(|failure| failure.text("error")))
    }

    pub(super) fn object(self, name: &str) -> Option<Facts<'a>> {
        self.0.get(name)?.as_object().map(Facts)
    }

    pub(super) fn objects(self, name: &str) -> impl Iterator<Item = Facts<'a>> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).map(Facts)
    }

    /// Returns the strings in the list `name`. Returns an empty vector if the fact is missing or is not a list.
    pub(super) fn strings(self, name: &str) -> Vec<&'a str> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the process ids of the sessions that block the session described by these facts.
    pub(super) fn blockers(self) -> Vec<i64> {
        self.0.get("waits_for").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_i64).collect()
    }

    /// Formats a count such as `7`. Appends `+` if counting stopped before the end, as in `10000+`.
    pub(super) fn format_count(self, name: &str) -> String {
        format!("{}{}", self.number(name).unwrap_or(0), if self.is_true("partial") { "+" } else { "" })
    }

    /// Formats a job count, and returns it with the matching plural suffix and verb, as in "1 job is" and "2 jobs are".
    pub(super) fn format_subject(self, name: &str) -> (String, &'static str, &'static str) {
        let count = self.format_count(name);
        let (ending, verb) = if count == "1" { ("", "is") } else { ("s", "are") };
        (count, ending, verb)
    }
}

impl WhyContext<'_> {
    /// Formats a time with its difference from the query time, such as `2026-11-23 12:00:05Z (2m ago)`.
    pub(super) fn format_time(&self, time: DateTime<Utc>) -> String {
        let shown = time.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ");
        match (self.at - time).to_std() {
            Ok(ago) => format!("{shown} ({} ago)", format_duration(ago)),
            Err(_) => format!("{shown} (in {})", format_duration((time - self.at).to_std().unwrap_or_default())),
        }
    }

    /// Formats the time in fact `name`, with the prefix ` since `. Returns an empty string if the fact does not exist.
    pub(super) fn format_since(&self, facts: Facts<'_>, name: &str) -> String {
        facts.time(name).map_or_else(String::new, |time| format!(" since {}", self.format_time(time)))
    }
}

/// Formats a duration for people in its two largest units, such as `2h 5m`.
pub(super) fn format_duration(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let text = format_seconds(duration.as_secs());
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn format_seconds(seconds: u64) -> String {
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

/// Formats milliseconds as a duration. Invalid values are formatted as zero.
pub(super) fn format_ms(ms: f64) -> String {
    format_duration(Duration::try_from_secs_f64(ms.max(0.0) / 1000.0).unwrap_or_default())
}

/// Truncates untrusted text to 200 characters, and replaces control characters, such as line breaks, with spaces.
pub(super) fn one_line(text: &str) -> String {
    let mut line: String = text.chars().take(200).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().nth(200).is_some() {
        line.push('…');
    }
    line
}
