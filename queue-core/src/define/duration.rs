//! Formatting of durations for messages.

use std::time::Duration;

/// Formats a duration for messages. A duration of at least one day is formatted in whole days. Months and years are not used because they
/// vary in length.
pub(crate) fn format_duration(duration: Duration) -> String {
    match duration.as_secs() / 86_400 {
        0 if duration.is_zero() => "0s".to_owned(),
        0 => format!("{duration:?}"),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_readable_units() {
        let all = [0, 1_500, 3_600_000, 86_400_000 * 3, 6_311_520_000_000].map(|ms| format_duration(Duration::from_millis(ms)));
        assert_eq!(all, ["0s", "1.5s", "3600s", "3 days", "73050 days"]);
    }
}
