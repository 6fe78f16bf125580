//! Span data for OpenTelemetry, and the trace context of jobs. Compiled with the feature `otel`. Span attributes and links are passed
//! directly to OpenTelemetry, and do not appear in logs.

use opentelemetry::{
    Context,
    trace::{SpanContext, Status, TraceContextExt as _},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{AttemptSpanInfo, SYSTEM, TraceContext, TraceRelation, w3c};

/// Maximum length of an error description in bytes.
const MAX_ERROR_BYTES: usize = 1024;

/// Maximum number of links per span, equal to the default limit of OpenTelemetry SDKs.
const MAX_LINKS: usize = 128;

/// Returns the trace context to store with a job that is enqueued in `span`: the first sampled context among `span`, the current span and
/// the current OpenTelemetry context. Returns `None` if no context is sampled.
pub(crate) fn current_context(span: &Span) -> Option<TraceContext> {
    let sampled_context = |span: &Span| sampled(&span.context());
    let context = if span.is_disabled() { None } else { sampled_context(span) };
    let context = context.or_else(|| {
        let current = Span::current();
        if current.is_disabled() { None } else { sampled_context(&current) }
    });
    context.or_else(|| Context::map_current(sampled)).map(|context| w3c::format(&context))
}

fn sampled(context: &Context) -> Option<SpanContext> {
    if !context.has_active_span() {
        return None;
    }
    let span = context.span();
    let context = span.span_context();
    (context.is_valid() && context.is_sampled()).then(|| context.clone())
}

/// Sets the attributes of an attempt's span, and the span's parent or link.
pub(crate) fn begin(span: &Span, info: &AttemptSpanInfo<'_>) {
    let AttemptSpanInfo { job, attempt, queue, meta, relation, .. } = info;
    // Starts a new trace. Fails if no OpenTelemetry layer is installed, and the span then needs no OpenTelemetry data.
    if span.set_parent(Context::new()).is_err() {
        return;
    }
    set_name(span, queue);
    span.set_attribute("messaging.message.id", job.to_string());
    span.set_attribute("messaging.message.delivery_attempt", i64::from(*attempt));
    match (w3c::parse_meta(*meta), relation) {
        (Some(origin), TraceRelation::Child) => drop(span.set_parent(Context::new().with_remote_span_context(origin))),
        (Some(origin), TraceRelation::Link) => span.add_link(origin),
        (None, _) => {}
    }
}

/// Sets the attributes and links of a batch handler's span.
pub(crate) fn begin_batch<'a>(span: &Span, members: impl ExactSizeIterator<Item = AttemptSpanInfo<'a>>) {
    if span.set_parent(Context::new()).is_err() {
        return;
    }
    span.set_attribute("messaging.batch.message_count", i64::try_from(members.len()).unwrap_or(i64::MAX));
    let mut members = members.peekable();
    if let Some(first) = members.peek() {
        set_name(span, first.queue);
    }
    members.filter_map(|member| w3c::parse_meta(member.meta)).take(MAX_LINKS).for_each(|origin| span.add_link(origin));
}

fn set_name(span: &Span, queue: &str) {
    span.record("otel.name", format!("attempt {queue}"));
    span.record("otel.kind", "consumer");
    span.set_attribute("messaging.system", SYSTEM);
    span.set_attribute("messaging.operation.name", "attempt");
    span.set_attribute("messaging.operation.type", "process");
    span.set_attribute("messaging.destination.name", queue.to_owned());
}

/// Handle that records an outcome in the span of an attempt or batch. The span stays open until the handle is dropped.
#[derive(Debug)]
pub(crate) struct OutcomeRecorder(Span);

impl Default for OutcomeRecorder {
    fn default() -> Self {
        Self(Span::none())
    }
}

impl OutcomeRecorder {
    pub(crate) fn new(span: &Span) -> Self {
        Self(span.clone())
    }

    /// Records the outcome in the span, together with the error if one is given.
    pub(crate) fn record(self, outcome: &'static str, error: Option<&str>) {
        let Self(span) = self;
        if span.is_disabled() {
            return;
        }
        span.set_attribute("outcome", outcome);
        if let Some(error) = error {
            span.set_attribute("error.type", outcome);
            span.set_status(Status::error(error[..error.floor_char_boundary(MAX_ERROR_BYTES)].to_owned()));
        }
    }
}
