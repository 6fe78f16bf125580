//! With the feature `otel`: what spans have for OpenTelemetry alone, so that logs are as they were, and what a job carries of a trace.

use opentelemetry::{
    Context,
    trace::{SpanContext, Status, TraceContextExt as _},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{Beginning, Carried, SYSTEM, TraceRelation, w3c};

/// The longest description of an error, in bytes.
const LONGEST_ERROR: usize = 1024;

/// The most links of one span: what collectors take.
const MOST_LINKS: usize = 128;

/// What a job carries that is enqueued in this span: that, or else what it stands in, if it is sampled.
pub(crate) fn carried(span: &Span) -> Option<Carried> {
    let of = |span: &Span| sampled(&span.context());
    let context = if span.is_disabled() { None } else { of(span) };
    let context = context.or_else(|| {
        let around = Span::current();
        if around.is_disabled() { None } else { of(&around) }
    });
    context.or_else(|| Context::map_current(sampled)).map(|context| w3c::write(&context))
}

fn sampled(context: &Context) -> Option<SpanContext> {
    if !context.has_active_span() {
        return None;
    }
    let span = context.span();
    let context = span.span_context();
    (context.is_valid() && context.is_sampled()).then(|| context.clone())
}

/// Says of an attempt's span what it is, and where its job comes from.
pub(crate) fn begin(span: &Span, beginning: &Beginning<'_>) {
    let Beginning { job, attempt, queue, meta, relation, .. } = beginning;
    // Fails, and costs little more, where nobody collects traces.
    if span.set_parent(Context::new()).is_err() {
        return;
    }
    name(span, queue);
    span.set_attribute("messaging.message.id", job.to_string());
    span.set_attribute("messaging.message.delivery_attempt", i64::from(*attempt));
    match (w3c::of_meta(*meta), relation) {
        (Some(origin), TraceRelation::Child) => drop(span.set_parent(Context::new().with_remote_span_context(origin))),
        (Some(origin), TraceRelation::Link) => span.add_link(origin),
        (None, _) => {}
    }
}

/// The same of one that is of several jobs.
pub(crate) fn begin_batch<'a>(span: &Span, members: impl ExactSizeIterator<Item = Beginning<'a>>) {
    if span.set_parent(Context::new()).is_err() {
        return;
    }
    span.set_attribute("messaging.batch.message_count", i64::try_from(members.len()).unwrap_or(i64::MAX));
    let mut members = members.peekable();
    if let Some(first) = members.peek() {
        name(span, first.queue);
    }
    members.filter_map(|member| w3c::of_meta(member.meta)).take(MOST_LINKS).for_each(|origin| span.add_link(origin));
}

fn name(span: &Span, queue: &str) {
    span.record("otel.name", format!("attempt {queue}"));
    span.record("otel.kind", "consumer");
    span.set_attribute("messaging.system", SYSTEM);
    span.set_attribute("messaging.operation.name", "attempt");
    span.set_attribute("messaging.operation.type", "process");
    span.set_attribute("messaging.destination.name", queue.to_owned());
}

/// A span that is told how what it is of ended. It ends no sooner than this is dropped.
#[derive(Debug)]
pub(crate) struct Told(Span);

impl Default for Told {
    fn default() -> Self {
        Self(Span::none())
    }
}

impl Told {
    pub(crate) fn of(span: &Span) -> Self {
        Self(span.clone())
    }

    /// Says how it ended, and with which error, if it has failed.
    pub(crate) fn end(self, outcome: &'static str, error: Option<&str>) {
        let Self(span) = self;
        if span.is_disabled() {
            return;
        }
        span.set_attribute("outcome", outcome);
        if let Some(error) = error {
            span.set_attribute("error.type", outcome);
            span.set_status(Status::error(error[..error.floor_char_boundary(LONGEST_ERROR)].to_owned()));
        }
    }
}
