//! Durations in options and settings.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};

/// Duration, written as `30s` or `1h 30m`. Weeks are the longest unit, because months and years vary in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim_start().starts_with('-') {
            return Err("a duration cannot be negative; write one like `30s`, `5m` or `1h 30m`".to_owned());
        }
        if has_calendar_unit(text) {
            return Err("months and years differ in length; write days, as in `30d`".to_owned());
        }
        humantime::parse_duration(text).map(Self).map_err(|error| match error {
            humantime::DurationError::UnknownUnit { unit, .. } if !unit.is_empty() => {
                format!("there is no unit `{unit}`; write a duration with `s`, `m`, `h`, `d` or `w`, like `1h 30m`")
            }
            error => format!("{error}; write a duration like `30s`, `5m` or `1h 30m`"),
        })
    }
}

/// Returns whether the text contains months or years, which vary in length. `M` stands for months, and `m` for minutes.
pub(super) fn has_calendar_unit(text: &str) -> bool {
    let mut units = text.split(|letter: char| !letter.is_ascii_alphabetic());
    units.any(|unit| ["M", "mon", "mons", "month", "months", "y", "Y", "yr", "yrs", "year", "years"].contains(&unit))
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 86_400;
        let (days, rest) = (self.0.as_secs() / DAY, Duration::new(self.0.as_secs() % DAY, self.0.subsec_nanos()));
        match days {
            0 => write!(f, "{}", humantime::format_duration(rest)),
            days if rest.is_zero() => write!(f, "{days}d"),
            days => write!(f, "{days}d {}", humantime::format_duration(rest)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_and_have_no_calendar_units() {
        for (text, shown) in
            [("90s", "1m 30s"), ("2w", "14d"), ("45d", "45d"), ("400d 1h", "400d 1h"), ("0s", "0s"), ("1500ms", "1s 500ms")]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.to_string().as_str(), span.to_string().parse()), (shown, Ok(span)));
        }
        for text in ["1M", "1mon", "1Y", "1month", "2 months", "1y", "1yr", "3years", "1d 1y"] {
            assert_eq!(text.parse::<Span>(), Err("months and years differ in length; write days, as in `30d`".to_owned()), "{text}");
        }
        let unknown = "there is no unit `fortnights`; write a duration with `s`, `m`, `h`, `d` or `w`, like `1h 30m`".to_owned();
        assert_eq!("2 fortnights".parse::<Span>(), Err(unknown));
    }
}
