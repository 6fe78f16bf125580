//! When to claim: the scout that finds out where jobs are, the claimers of groups of lanes, and the suspects that run alone.

mod claimer;
mod claimers;
mod context;
mod doze;
mod flight;
mod late;
mod launch;
mod lines;
mod lineup;
mod pacing;
mod pauses;
mod round;
mod scout;
mod slow;
mod suspects;
mod traffic;
mod trial;
mod vigil;
mod waiter;

pub(crate) use self::{scout::Scout, slow::tell_slow_downs};
