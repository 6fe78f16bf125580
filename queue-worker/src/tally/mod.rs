//! What came of attempts, in figures: counted in memory as verdicts are written, and said every ten seconds. Decides nothing about jobs.

mod book;
mod counts;
mod expired;
mod fold;
mod roll_up;
mod say;
#[cfg(any(feature = "metrics", feature = "otel"))]
mod totals;

#[cfg(any(feature = "metrics", feature = "otel"))]
pub(crate) use self::counts::Counts;
pub(crate) use self::{
    book::Tallies,
    counts::{Attempt, How, QueueNumber},
    roll_up::{prune_totals, roll_up},
    say::{TALLY_INTERVAL, say_tallies},
};
