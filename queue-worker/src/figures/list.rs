//! The list of metrics: each one's name as OpenTelemetry has it, its kind, its unit, and what it means. docs/METRICS.md is its table.

/// What kind of figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// As OpenTelemetry writes it: `s`, or what is counted in braces.
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, $unit:literal, $help:literal;)*) => {
        $(pub(super) static $constant: Metric = Metric { name: $name, kind: Kind::$kind, unit: $unit, help: $help };)*

        /// All of them, in the order in which they are said.
        #[cfg_attr(not(any(test, feature = "otel")), allow(dead_code, reason = "a meter is told of all of them before there are figures"))]
        pub(super) static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    CONSUMED = "messaging.client.consumed.messages", Counter, "{message}", "Attempts that ended in this process, by what came of them";
    RUN = "messaging.process.duration", Histogram, "s", "How long attempts ran";
    START = "queue.job.start.latency", Histogram, "s", "How long jobs had been ready when their attempts began";
    FAILURES = "queue.attempt.failures", Counter, "{attempt}", "Attempts that timed out or panicked";
    RECOVERED = "queue.jobs.recovered", Counter, "{job}", "Jobs that this process took back from workers that fell silent";
    EXPIRED = "queue.jobs.expired", Counter, "{job}", "Jobs that this process ended because no worker had begun them in time";
    CLAIM = "queue.claim.duration", Histogram, "s", "How long claims took";
    SETTLE = "queue.settle.duration", Histogram, "s", "How long verdicts took to be written, batch by batch, with all tries";
    SETTLE_LAG = "queue.settle.lag", Gauge, "s", "How long the oldest verdict that is not written has waited";
    SETTLE_RETRIES = "queue.settle.retries", Counter, "{try}", "How often writing verdicts had to be tried again";
    CONNECTIONS = "db.client.connection.count", Gauge, "{connection}", "Connections of the pool that handlers share, by state";
    CONNECTIONS_MAX = "db.client.connection.max", Gauge, "{connection}", "How many connections that pool may have";
    PRUNED = "queue.prune.age", Gauge, "s", "How long ago this process last pruned the store, with nothing that failed";
    REACHABLE = "queue.store.reachable", Gauge, "1", "Whether the store could be asked for the figures below";
    JOBS = "queue.jobs", Gauge, "{job}", "Jobs in the store, by queue and state";
    PARTIAL = "queue.jobs.partial", Gauge, "1", "Whether there may be more jobs in that state than were counted";
    OLDEST = "queue.ready.oldest", Gauge, "s", "How long the first ready job of a queue has been ready";
    DAYS = "queue.days.ahead", Gauge, "{day}", "Days after today of which the partitions are made";
    SNAPSHOT = "queue.snapshot.age", Gauge, "{transaction}", "How many transactions ago the oldest snapshot is that keeps removed rows";
    TRANSACTION = "queue.transaction.age", Gauge, "s", "How long the oldest open transaction with a snapshot lasts, as far as this role may see it";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_has_a_name_of_its_own_and_a_meaning() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Metric { name, unit, help, kind } in ALL {
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '.'), "{name}");
            assert!(!help.is_empty() && !help.ends_with('.') && (*unit == "s" || *unit == "1" || unit.starts_with('{')), "{name}");
            assert!(*kind != Kind::Histogram || *unit == "s", "{name}");
        }
    }
}
