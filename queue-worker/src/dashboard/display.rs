//! Formatting of values for pages. The functions for untrusted text neutralize control characters and bidirectional formatting characters.
//! Templates escape HTML. The function `escape` does so for HTML that is built in Rust.

use std::{fmt::Write as _, time::Duration};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use crate::escape;

/// Point in time and the database's current time, for relative display.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Moment {
    pub(super) fn new(at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self { at, now }
    }

    /// Formats the time in UTC, rounded to seconds.
    pub(super) fn utc(self) -> String {
        self.at.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ").to_string()
    }

    /// Formats the time as RFC 3339 with milliseconds, for the `datetime` attribute of an HTML element.
    pub(super) fn rfc3339(self) -> String {
        self.at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
    }

    /// Formats the time relative to now, for example `3 min ago` or `in 2 h`.
    pub(super) fn relative(self) -> String {
        let past = self.now - self.at;
        if past >= TimeDelta::zero() {
            format!("{} ago", duration(past.to_std().unwrap_or_default()))
        } else {
            format!("in {}", duration((-past).to_std().unwrap_or_default()))
        }
    }
}

/// Formats a duration with at most two units, for example `850 ms`, `12 s`, `3 min`, `2 h 5 min` or `4 d 3 h`.
pub(super) fn duration(duration: Duration) -> String {
    let two = |large: u64, large_name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {large_name}"),
        _ => format!("{large} {large_name} {small} {small_name}"),
    };
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        seconds @ 3600..86400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        seconds => two(seconds / 86400, "d", seconds % 86400 / 3600, "h"),
    }
}

/// Formats a count with narrow spaces as thousands separators. If `partial` is `true`, appends a plus sign to mark a lower bound.
pub(super) fn count(number: i64, partial: bool) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digit.is_ascii_digit() && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if partial { text + "+" } else { text }
}

/// Percent-encodes a value for a URL path or query.
pub(super) fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte) {
            out.push(byte.into());
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Escapes untrusted text for display on one line.
pub(super) fn line(text: &str) -> String {
    escape::line(text)
}

/// Escapes untrusted text for display and keeps its line breaks.
pub(super) fn lines(text: &str) -> String {
    escape::lines(text)
}

/// Escapes text for HTML content and attribute values.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

/// Replaces unsafe characters in a JSON document with JSON escapes. The document's value does not change.
pub(super) fn json(text: &str) -> String {
    escape::json(text)
}

/// Escapes untrusted text for display on one line, truncated to `most` characters.
pub(super) fn truncate(text: &str, most: usize) -> String {
    escape::short(text, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let durations = [0, 850, 12_000, 180_000, 7_500_000, 360_000_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(durations, ["0 ms", "850 ms", "12 s", "3 min", "2 h 5 min", "4 d 4 h"]);
    }

    #[test]
    fn counts_group_thousands_and_mark_lower_bounds() {
        assert_eq!([count(0, false), count(999, true), count(1_234_567, true)], ["0", "999+", "1\u{202f}234\u{202f}567+"]);
    }
}
