//! Stub of the `otel` module for builds without the feature `otel`. Spans get no OpenTelemetry data, and jobs store no trace context.

use tracing::Span;

use super::{AttemptSpanInfo, TraceContext};

pub(crate) fn current_context(_: &Span) -> Option<TraceContext> {
    None
}

pub(crate) fn begin(_: &Span, _: &AttemptSpanInfo<'_>) {}

pub(crate) fn begin_batch<'a>(_: &Span, _: impl ExactSizeIterator<Item = AttemptSpanInfo<'a>>) {}

/// No-op recorder of the outcome of a span.
#[derive(Debug, Default)]
pub(crate) struct OutcomeRecorder;

impl OutcomeRecorder {
    pub(crate) fn new(_: &Span) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the recorder with the feature uses it")]
    pub(crate) fn record(self, _: &'static str, _: Option<&str>) {}
}
