//! Collects the metrics of a worker from its outcome counters, its loops, its connection pool and the store.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use queue_core::{JobState, Store};
use sqlx::PgPool;

use super::{
    list::{self, Metric},
    store::{StoreMetrics, StoreState},
};
use crate::{
    live::{LoopHealth, Timings},
    tally::{MetricsBuffer, OutcomeCounters},
};

/// Sources of a worker's metrics.
#[derive(Clone)]
pub(crate) struct WorkerMetrics {
    metrics: MetricsBuffer,
    loop_health: LoopHealth,
    pool: PgPool,
    store: Arc<StoreMetrics>,
}

/// Metric with its data points.
pub(super) struct MetricFamily {
    pub(super) metric: &'static Metric,
    pub(super) points: Vec<DataPoint>,
}

/// Labels that distinguish the data points of a metric.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Value of a metric for one set of labels.
pub(super) struct DataPoint {
    pub(super) labels: Labels,
    pub(super) value: PointValue,
}

pub(super) enum PointValue {
    Number(f64),
    Timings(Box<Timings>),
}

const QUEUE: &str = "messaging.destination.name";
const JOB_TYPE: &str = "queue.job.type";
const STATE: &str = "queue.state";

/// Label that the OpenTelemetry conventions require for every messaging metric.
const SYSTEM: (&str, &str) = ("messaging.system", "queue");

impl WorkerMetrics {
    /// Creates the metrics of the worker that records into `metrics` and `loop_health`.
    pub(crate) fn new(metrics: &MetricsBuffer, loop_health: &LoopHealth, pool: &PgPool, store: Store) -> Self {
        metrics.enable_totals();
        let own = Arc::new(StoreMetrics::new(pool, store, loop_health));
        Self { metrics: metrics.clone(), loop_health: loop_health.clone(), pool: pool.clone(), store: own }
    }

    /// Collects all metrics. The store is queried at most once every five seconds, with a timeout of three seconds. If the store does not
    /// respond, all metrics of the store except its reachability are omitted.
    pub(super) async fn collect_all(&self) -> Vec<MetricFamily> {
        let found = self.store.current().await;
        let mut families = self.local();
        families.push(MetricFamily { metric: &list::REACHABLE, points: vec![number(vec![], f64::from(u8::from(found.is_some())))] });
        families.extend(found.iter().flat_map(|found| of_store(found)));
        families
    }

    /// Collects the metrics that need no database query.
    pub(super) fn local(&self) -> Vec<MetricFamily> {
        let mut families = self.of_attempts();
        families.extend(self.of_loops());
        families
    }

    /// Collects the metrics of finished attempts.
    fn of_attempts(&self) -> Vec<MetricFamily> {
        let [mut consumed, mut run, mut start] = [const { Vec::new() }; 3];
        let [mut failures, mut recovered, mut expired] = [const { Vec::new() }; 3];
        for (queue, job_type, counts) in self.metrics.totals() {
            let own = || vec![(QUEUE, queue.clone()), (JOB_TYPE, job_type.clone())];
            let with = |name, word: &str| [own(), vec![(name, word.to_owned())]].concat();
            let conventional = |labels| [vec![(SYSTEM.0, SYSTEM.1.to_owned())], labels].concat();
            let outcomes = counts.outcomes().into_iter().filter(|(_, attempts)| *attempts > 0);
            consumed.extend(outcomes.map(|(word, attempts)| number(conventional(with("queue.outcome", word)), attempts as f64)));
            let OutcomeCounters { run: ran, start: waited, .. } = &counts;
            run.extend(timings(conventional(own()), ran));
            start.extend(timings(own(), waited));
            let kinds = counts.failures().into_iter().filter(|(_, attempts)| *attempts > 0);
            failures.extend(kinds.map(|(word, attempts)| number(with("error.type", word), attempts as f64)));
            recovered.extend((counts.crashed > 0).then(|| number(own(), counts.crashed as f64)));
            expired.extend((counts.expired > 0).then(|| number(own(), counts.expired as f64)));
        }
        let family = |metric, points| MetricFamily { metric, points };
        vec![
            family(&list::CONSUMED, consumed),
            family(&list::RUN, run),
            family(&list::START, start),
            family(&list::FAILURES, failures),
            family(&list::RECOVERED, recovered),
            family(&list::EXPIRED, expired),
        ]
    }

    /// Collects the metrics of the worker's loops and of the connection pool.
    fn of_loops(&self) -> Vec<MetricFamily> {
        let Self { loop_health, pool, .. } = self;
        let seconds = |age: Option<Duration>| age.map(|age| number(vec![], age.as_secs_f64()));
        let (size, idle) = (f64::from(pool.size()), pool.num_idle() as f64);
        let connections = [("used", (size - idle).max(0.0)), ("idle", idle)];
        let of_pool = || vec![("db.client.connection.pool.name", "handlers".to_owned())];
        let connections =
            connections.map(|(state, count)| number([of_pool(), vec![("db.client.connection.state", state.to_owned())]].concat(), count));
        let most = f64::from(pool.options().get_max_connections());
        let family = |metric, points| MetricFamily { metric, points };
        vec![
            family(&list::CLAIM, timings(vec![], &loop_health.claim_took()).into_iter().collect()),
            family(&list::SETTLE, timings(vec![], &loop_health.settle_took()).into_iter().collect()),
            family(&list::SETTLE_LAG, seconds(Some(loop_health.settling.age().unwrap_or_default())).into_iter().collect()),
            family(&list::SETTLE_RETRIES, vec![number(vec![], loop_health.settle_retries.load(Relaxed) as f64)]),
            family(&list::CONNECTIONS, connections.into()),
            family(&list::CONNECTIONS_MAX, vec![number(of_pool(), most)]),
            family(&list::PRUNED, seconds(loop_health.pruned.age()).into_iter().collect()),
        ]
    }
}

/// Converts the queried state of the store into metrics.
fn of_store(found: &StoreState) -> Vec<MetricFamily> {
    let mut jobs: BTreeMap<(&str, JobState), i64> = BTreeMap::new();
    let mut rest: BTreeMap<JobState, i64> = found.jobs.totals.iter().map(|total| (total.state, total.jobs)).collect();
    for count in &found.jobs.counts {
        *jobs.entry((&count.queue, count.state)).or_default() += count.jobs;
        *rest.entry(count.state).or_default() -= count.jobs;
    }
    // Only the pairs of queue and type with the most unfinished jobs are counted separately. All other jobs are counted together under
    // `OutcomeCounters::OTHER`.
    let rest = rest.into_iter().filter(|(_, jobs)| *jobs > 0).map(|(state, jobs)| ((OutcomeCounters::OTHER, state), jobs));
    let labels = |queue: &str, state: JobState| vec![(QUEUE, queue.to_owned()), (STATE, state.to_string())];
    let jobs = jobs.into_iter().chain(rest).map(|((queue, state), jobs)| number(labels(queue, state), jobs as f64));
    let partial = found.jobs.totals.iter();
    let partial = partial.map(|total| number(vec![(STATE, total.state.to_string())], f64::from(u8::from(total.partial))));
    let waits = found.oldest.iter().filter_map(|oldest| Some((&oldest.queue, oldest.waited?)));
    let waits = waits.map(|(queue, waited)| number(vec![(QUEUE, queue.clone())], waited.as_secs_f64()));
    let single =
        |metric, value: Option<f64>| MetricFamily { metric, points: value.map(|value| number(vec![], value)).into_iter().collect() };
    vec![
        MetricFamily { metric: &list::JOBS, points: jobs.collect() },
        MetricFamily { metric: &list::PARTIAL, points: partial.collect() },
        MetricFamily { metric: &list::OLDEST, points: waits.collect() },
        single(&list::DAYS, Some(f64::from(found.days_ahead))),
        single(&list::SNAPSHOT, Some(found.snapshot_age as f64)),
        single(&list::TRANSACTION, found.transaction_age),
    ]
}

fn number(labels: Labels, value: f64) -> DataPoint {
    DataPoint { labels, value: PointValue::Number(value) }
}

/// Returns a data point for a histogram, or `None` if the histogram is empty.
fn timings(labels: Labels, timings: &Timings) -> Option<DataPoint> {
    (timings.count() > 0).then(|| DataPoint { labels, value: PointValue::Timings(Box::new(timings.clone())) })
}
