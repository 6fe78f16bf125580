//! Durations as they are written.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

/// A duration, written `30s` or `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim_start().starts_with('-') {
            return Err("a duration cannot be negative".to_owned());
        }
        humantime::parse_duration(text).map(Self).map_err(|error| format!("{error}; write a duration like `30s`, `5m` or `1h 30m`"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 86_400;
        // The longest unit in which all durations are written exactly: a month has 30.44 days.
        match (self.0.as_secs(), self.0.subsec_nanos()) {
            (seconds, 0) if seconds >= DAY && seconds.is_multiple_of(DAY) => write!(f, "{}d", seconds / DAY),
            _ => write!(f, "{}", humantime::format_duration(self.0)),
        }
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl From<Span> for Option<Duration> {
    fn from(span: Span) -> Self {
        Some(span.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
