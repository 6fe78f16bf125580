//! Tests traces: the spans of enqueues and attempts as an OpenTelemetry collector receives them, and the trace context of a job.
//!
//! The handlers and the collector of a test run on the test's own thread, so no test sees the spans of another test.

mod attempts;
mod carried;
mod enqueues;

use opentelemetry::{
    SpanId, Value,
    trace::{Status, TracerProvider as _},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use queue_core::JobId;
use serde_json::Value as Json;
use tests::TestDb;
use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::{Layer as _, layer::SubscriberExt as _};

/// Collector of the spans that finish on the current thread.
pub(super) struct Collector {
    spans: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Collector {
    pub(super) fn start() -> Self {
        Self::sampling(Sampler::AlwaysOn)
    }

    pub(super) fn sampling(sampler: Sampler) -> Self {
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(spans.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests")).with_filter(LevelFilter::INFO);
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        Self { spans, provider, _guard: guard }
    }

    /// Returns the finished spans in the order in which they finished.
    pub(super) fn all(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        self.spans.get_finished_spans().unwrap()
    }

    pub(super) fn named(&self, name: &str) -> Vec<SpanData> {
        self.all().into_iter().filter(|span| span.name == name).collect()
    }

    pub(super) fn only(&self, name: &str) -> SpanData {
        let mut named = self.named(name);
        assert_eq!(named.len(), 1, "of {name}: {:?}", self.all());
        named.remove(0)
    }
}

pub(super) fn attribute(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| match &pair.value {
        Value::String(text) => text.to_string(),
        other => other.to_string(),
    })
}

/// Returns the ids of the spans linked from `span`.
pub(super) fn links(span: &SpanData) -> Vec<SpanId> {
    span.links.iter().map(|link| link.span_context.span_id()).collect()
}

/// Returns the `traceparent` that a job carries for this span.
pub(super) fn traceparent(span: &SpanData) -> String {
    format!("00-{:032x}-{:016x}-01", span.span_context.trace_id(), span.span_context.span_id())
}

/// Returns the metadata of a job.
pub(super) async fn meta(db: &TestDb, job: JobId) -> Option<Json> {
    sqlx::query_scalar("select meta from queue.job where id = $1").bind(job).fetch_one(&db.pool).await.unwrap()
}

pub(super) fn is_root(span: &SpanData) -> bool {
    span.parent_span_id == SpanId::INVALID
}

pub(super) fn error_of(span: &SpanData) -> Option<&str> {
    match &span.status {
        Status::Error { description } => Some(description),
        _ => None,
    }
}
