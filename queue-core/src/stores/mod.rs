//! Many stores: which stores exist, which one each tenant is in, and operations on all of them.
//!
//! [`Roster`] is a list in memory, for programs that get their list of stores elsewhere. [`Stores`] keeps the list in a database, together with
//! the store of each tenant, which is a key of the caller's choice. Jobs enqueued through a [`Tenant`] go to the tenant's current store, even if
//! cached information is out of date, and a [move](Stores::move_tenant) loses no job.

mod home;
mod job;
mod place_cache;
mod moves;
mod all_stores;
mod place;
mod roster;
mod tenant;
mod tend;

pub use self::{
    all_stores::{Of, StoreCounts},
    home::{Rule, StoreRecord, Stores},
    job::StoreJob,
    moves::{Move, MoveState},
    place::PlaceRecord,
    roster::{Member, Roster},
    tenant::{Tenant, TenantTransaction},
};
