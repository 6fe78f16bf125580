//! How values look on a page. Pages escape what they are given; here is made harmless what HTML lets through: characters that act.

use std::{fmt::Write as _, time::Duration};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};

use crate::inert;

/// A moment, and how far it is from now, by the database's clock.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Moment {
    pub(super) fn new(at: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self { at, now }
    }

    /// In UTC and to the second, as people read it.
    pub(super) fn whole(self) -> String {
        self.at.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ").to_string()
    }

    /// As programs read it.
    pub(super) fn machine(self) -> String {
        self.at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
    }

    /// `3 min ago`, or `in 2 h`.
    pub(super) fn ago(self) -> String {
        let past = self.now - self.at;
        if past >= TimeDelta::zero() {
            format!("{} ago", span(past.to_std().unwrap_or_default()))
        } else {
            format!("in {}", span((-past).to_std().unwrap_or_default()))
        }
    }
}

/// The two largest units at most: `850 ms`, `12 s`, `3 min`, `2 h 5 min`, `4 d 3 h`.
pub(super) fn span(span: Duration) -> String {
    let two = |large: u64, large_name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {large_name}"),
        _ => format!("{large} {large_name} {small} {small_name}"),
    };
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        seconds @ 3600..86400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        seconds => two(seconds / 86400, "d", seconds % 86400 / 3600, "h"),
    }
}

/// With thin gaps between thousands, and a plus if there may be more.
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

/// A value in an address: all but letters, digits and a few marks as `%20`.
pub(super) fn in_address(text: &str) -> String {
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

/// One line of text from elsewhere.
pub(super) fn line(text: &str) -> String {
    inert::line(text)
}

/// Several.
pub(super) fn lines(text: &str) -> String {
    inert::lines(text)
}

/// As text in HTML, also within quotes.
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

/// A JSON document, which stays the same document.
pub(super) fn json(text: &str) -> String {
    inert::json(text)
}

/// One line, cut.
pub(super) fn short(text: &str, most: usize) -> String {
    inert::short(text, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let spans = [0, 850, 12_000, 180_000, 7_500_000, 360_000_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans, ["0 ms", "850 ms", "12 s", "3 min", "2 h 5 min", "4 d 4 h"]);
    }

    #[test]
    fn thousands_are_told_apart_and_a_plus_says_that_there_may_be_more() {
        assert_eq!([count(0, false), count(999, true), count(1_234_567, true)], ["0", "999+", "1\u{202f}234\u{202f}567+"]);
    }
}
