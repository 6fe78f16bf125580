//! Durations in messages.

use std::time::Duration;

/// A duration for people: in whole days where it has one at least. Months and years differ in length.
pub(crate) fn shown(duration: Duration) -> String {
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
    fn a_duration_is_shown_in_a_unit_that_people_read() {
        let all = [0, 1_500, 3_600_000, 86_400_000 * 3, 6_311_520_000_000].map(|ms| shown(Duration::from_millis(ms)));
        assert_eq!(all, ["0s", "1.5s", "3600s", "3 days", "73050 days"]);
    }
}
