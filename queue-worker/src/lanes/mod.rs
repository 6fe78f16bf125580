//! What to claim and where from: the lanes that a worker serves, where each one's jobs begin, and one claim.

mod claim;
mod groups;
mod held;
mod known;
mod lane;
mod large;
mod limited;
mod rescan;
mod room;
mod send;

pub(crate) use self::{
    claim::{Answer, Brought, Claimed, Request, Share, key_of},
    groups::Group,
    held::{Freed, Holding, KnownLeases},
    known::{Lanes, order, stored_types},
    lane::Lane,
    rescan::Rescan,
    room::{Asked, Room},
};
