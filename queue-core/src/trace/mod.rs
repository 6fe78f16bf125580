//! The spans of an enqueue and of an attempt, and the trace that goes with a job.
//!
//! Names and attributes are those of OpenTelemetry's conventions for messaging. What of it a job carries is the W3C's `traceparent` and
//! `tracestate`, in its metadata. Without the feature `otel` there are the spans alone, and nothing is carried. Knows nothing of the rest of this crate.

#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
mod w3c;

use std::fmt::Display;

use tracing::{Level, Span, field::Empty};

#[cfg(not(feature = "otel"))]
pub(crate) use self::off::{Told, begin, begin_batch, carried};
#[cfg(feature = "otel")]
pub(crate) use self::otel::{Told, begin, begin_batch, carried};

/// The keys of metadata under which a job carries the trace that it was enqueued in.
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";

/// What the conventions call the kind of queue.
const SYSTEM: &str = "postgresql";

/// Only whoever collects traces sees the span of an enqueue in its usual logs.
const ENQUEUE: Level = if cfg!(feature = "otel") { Level::INFO } else { Level::DEBUG };

/// How the span of an attempt stands to the span of the enqueue, if the job carries that. Needs the feature `otel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceRelation {
    /// An attempt begins a trace of its own, with a link to the enqueue: a job may run days later, and more than once.
    #[default]
    Link,
    /// An attempt is a child of the enqueue, in its trace, which decides whether it is sampled. An attempt of a batch has a link all the same.
    Child,
}

/// What a job carries of a trace.
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "nothing is carried then"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) traceparent: String,
    pub(crate) tracestate: Option<String>,
}

/// An attempt that is about to begin.
#[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "the span has less of it then"))]
pub(crate) struct Beginning<'a> {
    pub(crate) job: &'a dyn Display,
    pub(crate) job_type: &'a str,
    pub(crate) attempt: i16,
    pub(crate) queue: &'a str,
    /// As JSON text.
    pub(crate) meta: Option<&'a str>,
    pub(crate) relation: TraceRelation,
}

/// The span of an enqueue: into this queue and of this type, if all its jobs are.
pub(crate) fn enqueue(queue: Option<&str>, job_type: Option<&str>) -> Span {
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

/// Says in an enqueue's span what came of it: the job, if it is a new one, or the error. Nothing is said of a commit, which may be the caller's.
pub(crate) fn enqueued<E: Display>(span: &Span, sent: Result<Option<&dyn Display>, &E>) {
    match sent {
        Ok(Some(job)) => span.record("messaging.message.id", tracing::field::display(job)),
        Ok(None) => span,
        Err(error) => span.record("otel.status_description", tracing::field::display(error)),
    };
}

/// Says how many jobs an enqueue of many had.
pub(crate) fn enqueued_all<E: Display>(span: &Span, sent: Result<u64, &E>) {
    match sent {
        Ok(jobs) => span.record("messaging.batch.message_count", jobs),
        Err(error) => span.record("otel.status_description", tracing::field::display(error)),
    };
}

/// The span of an attempt: at the highest level, so that what handlers log is told apart wherever they log at all.
pub(crate) fn attempt(beginning: &Beginning<'_>) -> Span {
    let Beginning { job, job_type, attempt, .. } = beginning;
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
        begin(&span, beginning);
    }
    span
}

/// The span of a handler that runs several jobs at once.
pub(crate) fn batch<'a>(job_type: &str, members: impl ExactSizeIterator<Item = Beginning<'a>>) -> Span {
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
