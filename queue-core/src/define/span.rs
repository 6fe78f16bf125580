//! Durations in messages.

use std::time::Duration;

/// A duration for people: whole days or years where it has one of them at least.
pub(crate) fn shown(duration: Duration) -> String {
    const UNITS: [(u64, &str); 2] = [(31_557_600, "year"), (86_400, "day")];
    match UNITS.iter().map(|(seconds, unit)| (duration.as_secs() / seconds, unit)).find(|(count, _)| *count > 0) {
        Some((1, unit)) => format!("1 {unit}"),
        Some((count, unit)) => format!("{count} {unit}s"),
        None if duration.is_zero() => "0s".to_owned(),
        None => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_a_unit_that_people_read() {
        let all = [0, 1_500, 3_600_000, 86_400_000 * 3, 6_311_520_000_000].map(|ms| shown(Duration::from_millis(ms)));
        assert_eq!(all, ["0s", "1.5s", "3600s", "3 days", "200 years"]);
    }
}
