//! When to claim: the loop that keeps the slots fed, the claims in the air, and the suspects that run alone.

mod batches;
mod doze;
mod feed;
mod flight;
mod free;
mod gates;
mod landing;
mod late;
mod launch;
mod limits;
mod lines;
mod lineup;
mod notes;
mod pauses;
mod round;
mod slow;
mod suspects;
mod traffic;
mod trial;
mod turns;
mod vigil;

pub(crate) use self::feed::Feed;
