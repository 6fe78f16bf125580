//! Results with median, spread and ratio to a baseline. This module performs no I/O.

use std::fmt;

use serde::Serialize;

/// Line of the benchmark's output.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Report {
    /// Description of the measured server.
    Server(Server),
    /// Result of a workload.
    Figure(Record),
}

/// Server properties that affect the results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Server {
    /// PostgreSQL version and relevant settings.
    pub(crate) server: String,
}

/// Result of a workload, with the values of all runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// Workload: `W1` to `W11`, `L1` to `L4`, `F1` to `F6` or `S1`.
    pub(crate) workload: &'static str,
    /// Variant of the workload. The names of most baselines start with `line`.
    pub(crate) variant: String,
    /// Median of the runs.
    pub(crate) value: f64,
    /// Unit of `value`, such as `jobs/s`.
    pub(crate) unit: &'static str,
    /// Median of the baseline, which was measured in the same benchmark run. `None` if the result has no baseline.
    pub(crate) limit: Option<f64>,
    /// `value` divided by `limit`, or `None` without a baseline.
    pub(crate) ratio: Option<f64>,
    /// Measured values in chronological order.
    pub(crate) runs: Vec<f64>,
}

impl Record {
    pub(crate) fn new(workload: &'static str, variant: impl Into<String>, unit: &'static str, runs: Vec<f64>) -> Self {
        Self { workload, variant: variant.into(), value: median(&runs), unit, limit: None, ratio: None, runs }
    }

    /// Sets the median of `line` as the baseline and computes the ratio.
    pub(crate) fn against(self, line: &[f64]) -> Self {
        let limit = median(line);
        Self { limit: Some(limit), ratio: Some(self.value / limit), ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(Server { server }) => {
                write!(f, "{server}\n\n{:4} {:20} {:>11} {:18} {:>23}  ratio", "", "", "median", "", "spread")
            }
            Self::Figure(record) => record.fmt(f),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, variant, value, unit, limit, ratio, runs } = self;
        let (least, most) = runs.iter().fold((f64::MAX, f64::MIN), |(least, most), run| (run.min(least), run.max(most)));
        let spread = if runs.len() > 1 { format!("{} .. {}", short(least), short(most)) } else { String::new() };
        write!(f, "{workload:4} {variant:20} {:>11} {unit:18} {spread:>23}", short(*value))?;
        match (ratio, limit) {
            (Some(ratio), Some(limit)) => write!(f, "  {ratio:.2} of {}", short(*limit)),
            _ => Ok(()),
        }
    }
}

/// Formats a value with zero to four decimals, fewer for larger values, and with thousands separators.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        least if least < 1.0 => 4,
        small if small < 10.0 => 2,
        medium if medium < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let whole = text.find('.').unwrap_or(text.len());
    let first = usize::from(text.starts_with('-'));
    let mut out = String::with_capacity(text.len() + 3);
    for (at, c) in text.char_indices() {
        if at > first && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Returns the median, or 0 for no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Returns a percentile of sorted values by the nearest-rank method, or 0 for no values.
pub(crate) fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle_and_a_percentile_is_a_value_that_occurred() {
        let medians = [median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])];
        assert_eq!(medians.map(|median| format!("{median:.1}")), ["0.0", "2.0", "2.5"]);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([percentile(&hundred, 0.5), percentile(&hundred, 0.99), percentile(&hundred, 1.0)], [50, 99, 100]);
        assert_eq!([percentile(&[], 0.5), percentile(&[7], 0.99)], [0, 7]);
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(["0.0050", "1.25", "12.5", "999", "1,234,567"], [0.005, 1.25, 12.5, 999.0, 1_234_567.0].map(short));
    }
}
