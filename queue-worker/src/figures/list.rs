//! Definitions of all metrics: OpenTelemetry name, kind, unit and description. `docs/METRICS.md` contains the same list as a table.

/// Kind of a metric, as OpenTelemetry defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Name, kind, unit and description of a metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// Unit in UCUM notation, as OpenTelemetry requires: `s`, `1`, or an annotation such as `{job}`.
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, $unit:literal, $help:literal;)*) => {
        $(pub(super) static $constant: Metric = Metric { name: $name, kind: MetricKind::$kind, unit: $unit, help: $help };)*

        /// All metrics, in export order.
        #[cfg_attr(not(any(test, feature = "otel")), allow(dead_code, reason = "only an OpenTelemetry meter declares all metrics in advance"))]
        pub(super) static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    CONSUMED = "messaging.client.consumed.messages", Counter, "{message}", "Attempts that ended in this process, by outcome";
    RUN = "messaging.process.duration", Histogram, "s", "Duration of attempts";
    START = "queue.job.start.latency", Histogram, "s", "Time from ready to the start of the attempt";
    FAILURES = "queue.attempt.failures", Counter, "{attempt}", "Attempts that timed out or panicked";
    RECOVERED = "queue.jobs.recovered", Counter, "{job}", "Jobs that this process recovered from silent workers";
    EXPIRED = "queue.jobs.expired", Counter, "{job}", "Jobs that this process expired because no worker started them before their deadline";
    CLAIM = "queue.claim.duration", Histogram, "s", "Duration of claims";
    SETTLE = "queue.settle.duration", Histogram, "s", "Duration of writing a batch of verdicts, including retries";
    SETTLE_LAG = "queue.settle.lag", Gauge, "s", "Age of the oldest unwritten verdict";
    SETTLE_RETRIES = "queue.settle.retries", Counter, "{try}", "Retries of writing verdicts";
    CONNECTIONS = "db.client.connection.count", Gauge, "{connection}", "Connections of the handlers' pool, by state";
    CONNECTIONS_MAX = "db.client.connection.max", Gauge, "{connection}", "Maximum connections of the handlers' pool";
    PRUNED = "queue.prune.age", Gauge, "s", "Time since this process last pruned the store without failures";
    REACHABLE = "queue.store.reachable", Gauge, "1", "Whether the store could be queried for the metrics below";
    JOBS = "queue.jobs", Gauge, "{job}", "Jobs in the store, by queue and state";
    PARTIAL = "queue.jobs.partial", Gauge, "1", "Whether there may be more jobs in this state than were counted";
    OLDEST = "queue.ready.oldest", Gauge, "s", "Age of the oldest ready job of a queue";
    DAYS = "queue.days.ahead", Gauge, "{day}", "Days after today that have partitions";
    SNAPSHOT = "queue.snapshot.age", Gauge, "{transaction}", "Age in transactions of the oldest snapshot that prevents vacuuming";
    TRANSACTION = "queue.transaction.age", Gauge, "s", "Age of the oldest open transaction with a snapshot that this role may see";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn metrics_have_unique_names_and_descriptions() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Metric { name, unit, help, kind } in ALL {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '.'), "{name}");
            assert!(!help.is_empty() && !help.ends_with('.') && (*unit == "s" || *unit == "1" || unit.starts_with('{')), "{name}");
            assert!(*kind != MetricKind::Histogram || *unit == "s", "{name}");
        }
    }
}
