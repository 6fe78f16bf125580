//! Exports metrics to an OpenTelemetry meter. The embedding program owns the metric reader and decides where the metrics are sent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Histogram as Instrument, Meter},
};
use queue_core::operate::Histogram;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    collect::{DataPoint, Labels, MetricFamily, PointValue, WorkerMetrics},
    list::{ALL, Metric, MetricKind},
};
use crate::live::Timings;

/// Interval between updates of the meter, which bounds the staleness of exported metrics.
const INTERVAL: Duration = Duration::from_secs(10);

/// Values of one metric with their attributes.
type Points = Vec<(f64, Vec<KeyValue>)>;

/// Most recent data points by metric name.
type LatestPoints = Arc<Mutex<HashMap<&'static str, Points>>>;

/// Task that updates an OpenTelemetry meter with a worker's metrics.
pub(crate) struct MeterExporter {
    metrics: WorkerMetrics,
    latest: LatestPoints,
    recorder: Recorder,
    closing: CancellationToken,
}

impl MeterExporter {
    pub(crate) fn new(metrics: WorkerMetrics, meter: &Meter, closing: CancellationToken) -> Self {
        let (latest, recorder) = (LatestPoints::default(), Recorder::new(meter));
        observe(meter, &latest);
        Self { metrics, latest, recorder, closing }
    }

    /// Updates the meter until `closing` is cancelled, and once afterwards. The final update keeps counters and clears gauges.
    pub(crate) async fn run(&mut self) {
        loop {
            let is_last = self.closing.is_cancelled();
            // The final update does not query the store. A store that does not respond would otherwise delay the shutdown.
            let collected =
                if is_last { Some(self.metrics.local()) } else { self.closing.run_until_cancelled(self.metrics.collect_all()).await };
            let Some(families) = collected else { continue };
            self.recorder.record(&families);
            let exported = families.iter().filter(|family| !is_last || family.metric.kind == MetricKind::Counter);
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) =
                exported.map(|family| (family.metric.name, numbers(family))).collect();
            if is_last {
                return;
            }
            let _ = timeout(INTERVAL, self.closing.cancelled()).await;
        }
    }
}

/// Registers callbacks for counters and gauges. When the metric reader collects metrics, the callbacks report the latest data points.
fn observe(meter: &Meter, latest: &LatestPoints) {
    for Metric { name, kind, unit, help } in ALL.iter().copied() {
        let latest = Arc::clone(latest);
        let observe_all = move |instrument: &dyn AsyncInstrument<f64>| {
            for (value, attributes) in latest.lock().unwrap_or_else(PoisonError::into_inner).get(name).into_iter().flatten() {
                instrument.observe(*value, attributes);
            }
        };
        match kind {
            MetricKind::Counter => {
                let _ = meter.f64_observable_counter(*name).with_unit(*unit).with_description(*help).with_callback(observe_all).build();
            }
            MetricKind::Gauge => {
                let _ = meter.f64_observable_gauge(*name).with_unit(*unit).with_description(*help).with_callback(observe_all).build();
            }
            MetricKind::Histogram => {}
        }
    }
}

/// Recorder for histograms. Records each value as the midpoint of its bucket, because the exact value is not known. The metric reader
/// uses the same bucket boundaries and therefore counts the value in the same bucket.
struct Recorder {
    instruments: HashMap<&'static str, Instrument<f64>>,
    recorded: HashMap<(&'static str, Labels), Timings>,
}

impl Recorder {
    fn new(meter: &Meter) -> Self {
        let bounds: Vec<f64> = Histogram::BOUNDS_MS.iter().map(|ms| *ms as f64 / 1000.0).collect();
        let histograms = ALL.iter().filter(|metric| metric.kind == MetricKind::Histogram);
        let built = histograms.map(|Metric { name, unit, help, .. }| {
            let builder = meter.f64_histogram(*name).with_unit(*unit).with_description(*help);
            (*name, builder.with_boundaries(bounds.clone()).build())
        });
        Self { instruments: built.collect(), recorded: HashMap::new() }
    }

    /// Records the values added to the histograms since the last call.
    fn record(&mut self, families: &[MetricFamily]) {
        for MetricFamily { metric, points } in families {
            let Some(instrument) = self.instruments.get(metric.name) else { continue };
            for DataPoint { labels, value } in points {
                let PointValue::Timings(timings) = value else { continue };
                let attributes = attributes(labels);
                let recorded = self.recorded.entry((metric.name, labels.clone())).or_default();
                let new = timings.lengths.buckets().iter().zip(recorded.lengths.buckets()).map(|(now, before)| now.saturating_sub(*before));
                for (bucket, jobs) in new.enumerate() {
                    (0..jobs).for_each(|_| instrument.record(middle(bucket), &attributes));
                }
                *recorded = (**timings).clone();
            }
        }
    }
}

/// Returns the midpoint of a histogram bucket in seconds. The last bucket is assumed to end at twice its lower bound.
fn middle(bucket: usize) -> f64 {
    let bounds = Histogram::BOUNDS_MS;
    let low = bucket.checked_sub(1).map_or(0, |before| bounds[before]) as f64;
    let high = bounds.get(bucket).map_or(2.0 * low, |high| *high as f64);
    f64::midpoint(low, high) / 1000.0
}

fn numbers(family: &MetricFamily) -> Points {
    let number = |point: &DataPoint| match point.value {
        PointValue::Number(value) => Some((value, attributes(&point.labels))),
        PointValue::Timings(_) => None,
    };
    family.points.iter().filter_map(number).collect()
}

fn attributes(labels: &[(&'static str, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(label, value)| KeyValue::new(*label, value.clone())).collect()
}
