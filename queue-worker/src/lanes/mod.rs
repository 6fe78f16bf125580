//! What to claim and where from: the lanes that a worker serves, where each one's jobs begin, and one claim.

mod claim;
mod held;
mod known;
mod large;
mod rescan;

pub(crate) use self::{
    claim::{Answer, Brought, Claimed, Request, Share, key_of},
    held::{Holding, KnownLeases},
    known::{Lane, Lanes, order, stored_types},
    rescan::Rescan,
};
