//! Export of the metrics in the Prometheus text format, version 0.0.4.

use std::fmt::Write as _;

use queue_core::operate::Histogram;

use super::{
    collect::{DataPoint, MetricFamily, PointValue, WorkerMetrics},
    list::{Metric, MetricKind},
};

impl WorkerMetrics {
    /// Renders all metrics as text.
    pub(crate) async fn text(&self) -> String {
        let mut text = String::new();
        for family in self.collect_all().await {
            write_family(&mut text, &family);
        }
        text
    }
}

/// Translates a metric name for Prometheus according to the OpenTelemetry conventions. Appends `_seconds` for metrics in seconds and
/// `_total` for counters.
pub(super) fn name(metric: &Metric) -> String {
    let unit = if metric.unit == "s" { "_seconds" } else { "" };
    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", metric.name.replace('.', "_"))
}

/// Appends a metric with its data points to the text. Errors are ignored, because writing to a `String` never fails.
fn write_family(text: &mut String, MetricFamily { metric, points }: &MetricFamily) {
    let name = name(metric);
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
    for DataPoint { labels, value } in points {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{}=\"{}\"", label.replace('.', "_"), escaped(value))).collect();
        match value {
            PointValue::Number(value) => {
                let _ = writeln!(text, "{name}{} {value}", braced(&labels));
            }
            PointValue::Timings(timings) => {
                let bounds = Histogram::BOUNDS_MS.iter().map(|ms| (*ms as f64 / 1000.0).to_string()).chain(["+Inf".to_owned()]);
                let mut below = 0;
                for (bound, jobs) in bounds.zip(timings.lengths.buckets()) {
                    below += jobs;
                    let labels = [&labels[..], &[format!("le=\"{bound}\"")]].concat();
                    let _ = writeln!(text, "{name}_bucket{} {below}", braced(&labels));
                }
                let labels = braced(&labels);
                let _ = writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {below}", timings.sum.as_secs_f64());
            }
        }
    }
}

fn braced(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{figures::list, live::Timings};

    #[test]
    fn metrics_are_written_in_the_text_format() {
        let mut timings = Timings::default();
        timings.record(Duration::from_micros(500));
        timings.record(Duration::from_millis(1500));
        let labels = vec![("messaging.destination.name", "a\"b\\c\nd".to_owned())];
        let points = vec![DataPoint { labels, value: PointValue::Timings(Box::new(timings)) }];
        let mut text = String::new();
        write_family(&mut text, &MetricFamily { metric: &list::RUN, points });
        let label = r#"messaging_destination_name="a\"b\\c\nd""#;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# HELP messaging_process_duration_seconds Duration of attempts");
        assert_eq!(lines[1], "# TYPE messaging_process_duration_seconds histogram");
        assert_eq!(lines[2], format!("messaging_process_duration_seconds_bucket{{{label},le=\"0.001\"}} 1"));
        assert!(
            text.contains(&format!("_bucket{{{label},le=\"1\"}} 1\n")) && text.contains(&format!("_bucket{{{label},le=\"2\"}} 2\n")),
            "{text}"
        );
        assert!(text.contains(&format!("_bucket{{{label},le=\"+Inf\"}} 2\n")), "{text}");
        assert!(text.ends_with(&format!("_sum{{{label}}} 1.5005\nmessaging_process_duration_seconds_count{{{label}}} 2\n")), "{text}");
    }

    #[test]
    fn counters_end_in_total_and_names_omit_counted_units() {
        assert_eq!(name(&list::CONSUMED), "messaging_client_consumed_messages_total");
        assert_eq!(name(&list::JOBS), "queue_jobs");
        assert_eq!(name(&list::SETTLE_LAG), "queue_settle_lag_seconds");
    }
}
