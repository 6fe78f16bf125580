//! Use of many stores: the list of stores, the store of each tenant, and operations on all stores.
//!
//! [`Roster`] is an in-memory list, for programs that get their list of stores elsewhere. [`Stores`] keeps the list in a database, together
//! with the store of each tenant. A tenant is identified by a key of the caller's choice. Jobs enqueued through a [`Tenant`] go to the
//! tenant's current store, even if cached information is out of date. A [move](Stores::move_tenant) loses no job.

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
