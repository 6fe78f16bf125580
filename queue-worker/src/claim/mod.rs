//! When to claim: the loop that keeps the slots fed, claimers of lanes under limits, and the suspects that run alone.

mod batches;
mod claimer;
mod context;
mod doze;
mod feed;
mod flight;
mod late;
mod launch;
mod lines;
mod lineup;
mod pacing;
mod pauses;
mod round;
mod slow;
mod suspects;
mod traffic;
mod trial;
mod under;
mod vigil;
mod waiter;

pub(crate) use self::{feed::Feed, slow::tell_slow_downs};
