//! What a worker can say in figures: what it counts itself, and what a look at the store tells. Said as Prometheus reads them, or to a meter of
//! OpenTelemetry. Nothing of a job waits for this.

mod gather;
mod list;
mod store;
#[cfg(feature = "metrics")]
mod text;
#[cfg(feature = "otel")]
mod meter;

pub(crate) use self::gather::Figures;
#[cfg(feature = "otel")]
pub(crate) use self::meter::Feed;
