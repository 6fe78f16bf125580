//! Metrics of a worker, collected from its counters and from store queries. The metrics are exported in the Prometheus text format or
//! to an OpenTelemetry meter. Collecting metrics never delays a job.

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
