//! Spans of enqueues and attempts, and the trace context stored with a job.
//!
//! Names and attributes follow OpenTelemetry's semantic conventions for messaging. A job stores the W3C `traceparent` and `tracestate` in
//! its metadata. Without the feature `otel`, spans are created but no trace context is stored. This module does not depend on other
//! modules of the crate.

#[cfg(not(feature = "otel"))]
mod disabled;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
mod w3c;

use std::fmt::Display;

use tracing::{Level, Span, field::Empty};

#[cfg(not(feature = "otel"))]
pub(crate) use self::disabled::{OutcomeRecorder, begin, begin_batch, current_context};
#[cfg(feature = "otel")]
pub(crate) use self::otel::{OutcomeRecorder, begin, begin_batch, current_context};

/// Metadata key under which a job stores the `traceparent` of its enqueue.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Metadata key under which a job stores the `tracestate` of its enqueue.
pub(crate) const TRACESTATE: &str = "tracestate";

/// Value of the span attribute `messaging.system`.
const SYSTEM: &str = "postgresql";

/// Level of enqueue spans. With the feature `otel`, the level is `INFO`, so the usual log filters include enqueue spans.
const ENQUEUE: Level = if cfg!(feature = "otel") { Level::INFO } else { Level::DEBUG };

/// Relation between the span of an attempt and the span of the job's enqueue. The relation has an effect only with the feature `otel`, and
/// only for jobs with a stored trace context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceRelation {
    /// An attempt starts a new trace with a link to the enqueue span, because a job may run days after the enqueue and more than once.
    #[default]
    Link,
    /// The span of an attempt is a child of the enqueue span in the same trace. The sampling decision of the trace applies to the
    /// attempt. Attempts in a batch always use links.
    Child,
}

/// W3C trace context that is stored with a job.
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "no trace context is stored then"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) traceparent: String,
    pub(crate) tracestate: Option<String>,
}

/// Values for the span attributes of an attempt that is starting.
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "the span has fewer attributes then"))]
pub(crate) struct AttemptSpanInfo<'a> {
    pub(crate) job: &'a dyn Display,
    pub(crate) job_type: &'a str,
    pub(crate) attempt: i16,
    pub(crate) queue: &'a str,
    /// Metadata of the job as JSON text.
    pub(crate) meta: Option<&'a str>,
    pub(crate) relation: TraceRelation,
}

/// Creates the span of an enqueue. For a bulk enqueue, `queue` and `job_type` are set only if all jobs share the value.
pub(crate) fn enqueue_span(queue: Option<&str>, job_type: Option<&str>) -> Span {
    tracing::span!(
        target: "queue_core::enqueue",
        ENQUEUE,
        "enqueue",
        otel.name = %format_args!("enqueue{}{}", if queue.is_some() { " " } else { "" }, queue.unwrap_or_default()),
        otel.kind = "producer",
        otel.status_description = Empty,
        messaging.system = SYSTEM,
        messaging.operation.name = "enqueue",
        messaging.operation.type = "send",
        messaging.destination.name = queue,
        messaging.message.id = Empty,
        messaging.batch.message_count = Empty,
        job_type,
    )
}

/// Records the result of an enqueue in its span: the id of a new job, or the error. The commit is not recorded, because the caller may
/// commit the transaction later.
pub(crate) fn record_enqueue<E: Display>(span: &Span, sent: Result<Option<&dyn Display>, &E>) {
    match sent {
        Ok(Some(job)) => span.record("messaging.message.id", tracing::field::display(job)),
        Ok(None) => span,
        Err(error) => span.record("otel.status_description", tracing::field::display(error)),
    };
}

/// Records the result of a bulk enqueue in its span: the number of jobs, or the error.
pub(crate) fn record_bulk_enqueue<E: Display>(span: &Span, sent: Result<u64, &E>) {
    match sent {
        Ok(jobs) => span.record("messaging.batch.message_count", jobs),
        Err(error) => span.record("otel.status_description", tracing::field::display(error)),
    };
}

/// Creates the span of an attempt. The span has the level `ERROR`, so that every level filter that shows any event of the handler also
/// enables the span.
pub(crate) fn attempt_span(info: &AttemptSpanInfo<'_>) -> Span {
    let AttemptSpanInfo { job, job_type, attempt, .. } = info;
    let span = tracing::error_span!(
        target: "queue_core::attempt",
        "attempt",
        %job,
        job_type,
        attempt,
        otel.name = Empty,
        otel.kind = Empty,
    );
    if !span.is_disabled() {
        begin(&span, info);
    }
    span
}

/// Creates the span of a batch handler. The span has the level `ERROR`, as in [`attempt_span`].
pub(crate) fn batch_span<'a>(job_type: &str, members: impl ExactSizeIterator<Item = AttemptSpanInfo<'a>>) -> Span {
    let span = tracing::error_span!(
        target: "queue_core::attempt",
        "batch",
        job_type,
        jobs = members.len(),
        otel.name = Empty,
        otel.kind = Empty,
    );
    if !span.is_disabled() {
        begin_batch(&span, members);
    }
    span
}
