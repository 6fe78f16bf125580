//! Attempt outcomes, counted in memory as verdicts are written, and flushed to the store every ten seconds. The counts do not affect
//! jobs.

mod buffer;
mod counts;
mod expired;
mod fold;
mod roll_up;
mod flush;
#[cfg(any(feature = "metrics", feature = "otel"))]
mod totals;

#[cfg(any(feature = "metrics", feature = "otel"))]
pub(crate) use self::counts::OutcomeCounters;
pub(crate) use self::{
    buffer::MetricsBuffer,
    counts::{AttemptEndKind, CountedAttempt, QueueNumber},
    flush::{FLUSH_INTERVAL, flush_metrics},
    roll_up::{prune_totals, roll_up},
};
