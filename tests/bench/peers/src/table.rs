//! Results table with the median, the spread, and the ratio of our median to that of each other queue. This module performs no I/O.

use comfy_table::{Table, presets::ASCII_MARKDOWN};

/// Row of the results table.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) queue: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) jobs: u64,
    /// Measured values in chronological order.
    pub(crate) runs: Vec<f64>,
    /// Median of the same value for our queue. `None` in the rows of our queue.
    pub(crate) ours: Option<f64>,
}

pub(crate) fn draw(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["", "queue", "median", "spread", "ours / theirs", "jobs a run"]);
    for figure in figures {
        let median = median(&figure.runs);
        let least = figure.runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figure.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        table.add_row([
            figure.what.to_owned(),
            figure.queue.to_owned(),
            format!("{} {}", number(median), figure.unit),
            format!("{} to {}", number(least), number(most)),
            figure.ours.map_or_else(String::new, |ours| ratio(ours / median)),
            figure.jobs.to_string(),
        ]);
    }
    table.to_string()
}

pub(crate) fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        many if many % 2 == 1 => sorted[many / 2],
        many => f64::midpoint(sorted[many / 2 - 1], sorted[many / 2]),
    }
}

/// Formats numbers below 100 with two decimals, and larger numbers without decimals but with thousands separators.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn ratio(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { number(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!((number(1_234_567.2).as_str(), number(123.0).as_str(), number(1.5).as_str()), ("1,234,567", "123", "1.50"));
    }

    #[test]
    fn the_median_of_an_even_count_is_a_mean() {
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }
}
