//! Metrics of a worker, from its own counters and from queries of the store. They are exported in the Prometheus text format or to an
//! OpenTelemetry meter. No job waits for metrics.

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
