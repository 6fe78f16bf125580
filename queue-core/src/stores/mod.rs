//! Many stores: which there are, where each tenant is, and what is asked of all of them at once.
//!
//! [`Roster`] is a list in memory, for whoever knows the stores by other means. [`Stores`] keeps that list in a database, with the place of each tenant:
//! a key of the caller's choice. What is enqueued through a [`Tenant`] goes to where the tenant is, however old the news of that are, and a
//! [move](Stores::move_tenant) loses nothing on the way.

mod home;
mod job;
mod known;
mod moves;
mod over;
mod place;
mod roster;
mod tenant;
mod tend;

pub use self::{
    home::{Rule, StoreRecord, Stores},
    job::StoreJob,
    moves::{Move, MoveState},
    over::{Of, StoreCounts},
    place::PlaceRecord,
    roster::{Member, Roster},
    tenant::{Tenant, TenantTransaction},
};
