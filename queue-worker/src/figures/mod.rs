//! Metrics of a worker, from its own counters and from queries of the store, in Prometheus' text format or for an OpenTelemetry meter. No
//! job waits for them.

mod collect;
mod list;
mod store;
#[cfg(feature = "metrics")]
mod text;
#[cfg(feature = "otel")]
mod meter;

pub(crate) use self::collect::WorkerMetrics;
#[cfg(feature = "otel")]
pub(crate) use self::meter::MeterExporter;
