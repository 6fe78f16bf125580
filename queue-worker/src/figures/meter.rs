//! Figures for a meter of OpenTelemetry. Whose they are after that, and how they are sent, is the program's to say.

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
    gather::{Family, Figures, Labels, Point, Value},
    list::{ALL, Kind, Metric},
};
use crate::live::Timings;

/// A reader is told what was true so long ago at most.
const EVERY: Duration = Duration::from_secs(10);

/// Of one metric, by its attributes.
type Seen = Vec<(f64, Vec<KeyValue>)>;

/// What readers are told, metric by metric.
type Latest = Arc<Mutex<HashMap<&'static str, Seen>>>;

/// What a meter is told, and what it has been told.
pub(crate) struct Feed {
    figures: Figures,
    latest: Latest,
    recorder: Recorder,
    closing: CancellationToken,
}

impl Feed {
    pub(crate) fn new(figures: Figures, meter: &Meter, closing: CancellationToken) -> Self {
        let (latest, recorder) = (Latest::default(), Recorder::new(meter));
        observe(meter, &latest);
        Self { figures, latest, recorder, closing }
    }

    /// Tells the meter until `closing` fires, and once more then: what counts stays, what is measured is over.
    pub(crate) async fn run(&mut self) {
        loop {
            let is_last = self.closing.is_cancelled();
            // A store that does not answer keeps nobody from the last word.
            let gathered = if is_last { Some(self.figures.own()) } else { self.closing.run_until_cancelled(self.figures.gather()).await };
            let Some(families) = gathered else { continue };
            self.recorder.record(&families);
            let seen = families.iter().filter(|family| !is_last || family.metric.kind == Kind::Counter);
            *self.latest.lock().unwrap_or_else(PoisonError::into_inner) =
                seen.map(|family| (family.metric.name, numbers(family))).collect();
            if is_last {
                return;
            }
            let _ = timeout(EVERY, self.closing.cancelled()).await;
        }
    }
}

/// Counters and gauges are read when the program's reader wants them.
fn observe(meter: &Meter, latest: &Latest) {
    for Metric { name, kind, unit, help } in ALL.iter().copied() {
        let latest = Arc::clone(latest);
        let tell = move |instrument: &dyn AsyncInstrument<f64>| {
            for (value, attributes) in latest.lock().unwrap_or_else(PoisonError::into_inner).get(name).into_iter().flatten() {
                instrument.observe(*value, attributes);
            }
        };
        match kind {
            Kind::Counter => {
                let _ = meter.f64_observable_counter(*name).with_unit(*unit).with_description(*help).with_callback(tell).build();
            }
            Kind::Gauge => {
                let _ = meter.f64_observable_gauge(*name).with_unit(*unit).with_description(*help).with_callback(tell).build();
            }
            Kind::Histogram => {}
        }
    }
}

/// Histograms are told duration by duration: of each the middle of its bucket, which a reader puts into the same bucket.
struct Recorder {
    instruments: HashMap<&'static str, Instrument<f64>>,
    said: HashMap<(&'static str, Labels), Timings>,
}

impl Recorder {
    fn new(meter: &Meter) -> Self {
        let bounds: Vec<f64> = Histogram::BOUNDS_MS.iter().map(|ms| *ms as f64 / 1000.0).collect();
        let histograms = ALL.iter().filter(|metric| metric.kind == Kind::Histogram);
        let built = histograms.map(|Metric { name, unit, help, .. }| {
            let builder = meter.f64_histogram(*name).with_unit(*unit).with_description(*help);
            (*name, builder.with_boundaries(bounds.clone()).build())
        });
        Self { instruments: built.collect(), said: HashMap::new() }
    }

    /// What has come since the last time.
    fn record(&mut self, families: &[Family]) {
        for Family { metric, points } in families {
            let Some(instrument) = self.instruments.get(metric.name) else { continue };
            for Point { labels, value } in points {
                let Value::Timings(timings) = value else { continue };
                let attributes = attributes(labels);
                let said = self.said.entry((metric.name, labels.clone())).or_default();
                let new = timings.lengths.buckets().iter().zip(said.lengths.buckets()).map(|(now, before)| now.saturating_sub(*before));
                for (place, jobs) in new.enumerate() {
                    (0..jobs).for_each(|_| instrument.record(middle(place), &attributes));
                }
                *said = (**timings).clone();
            }
        }
    }
}

/// Of this bucket, in seconds.
fn middle(place: usize) -> f64 {
    let bounds = Histogram::BOUNDS_MS;
    let low = place.checked_sub(1).map_or(0, |before| bounds[before]) as f64;
    let high = bounds.get(place).map_or(2.0 * low, |high| *high as f64);
    f64::midpoint(low, high) / 1000.0
}

fn numbers(family: &Family) -> Seen {
    let number = |point: &Point| match point.value {
        Value::Number(value) => Some((value, attributes(&point.labels))),
        Value::Timings(_) => None,
    };
    family.points.iter().filter_map(number).collect()
}

fn attributes(labels: &[(&'static str, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(label, value)| KeyValue::new(*label, value.clone())).collect()
}
