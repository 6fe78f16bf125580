//! What to claim and where from: the lanes that a worker serves, where each one's jobs begin, and one claim.

mod claim;
mod floors;
mod groups;
mod hand;
mod held;
mod known;
mod lane;
mod left_out;
mod late;
mod limited;
mod line_up;
mod reach;
mod rescan;
mod room;
mod send;
mod sizes;
mod track;
mod turns;

pub(crate) use self::{
    claim::{Answer, Brought, Claimed, From, Request, Share},
    groups::{Group, GroupKey},
    hand::{Hand, InHand},
    held::{Holding, KnownLeases},
    known::{Ask, Lanes, Seen, When},
    lane::{Lane, order, stored_types},
    line_up::line_up,
    rescan::{Rescan, Swept},
    room::{Asked, Room},
    send::Said,
    track::Track,
};
