//! Support for several stores: the list of stores, the assignment of tenants to stores, and operations on all stores.
//!
//! [`Roster`] is an in-memory list, for programs that get their list of stores from another source. [`Stores`] keeps the list in a
//! database, together with the store of each tenant. A tenant is identified by a key of the caller's choice. Jobs enqueued through a
//! [`Tenant`] go to the tenant's current store, even if the cached assignment is out of date. No job is lost when a tenant is
//! [moved](Stores::move_tenant).

mod home;
mod job;
mod place_cache;
mod move_step;
mod moves;
mod all_stores;
mod place;
mod roster;
mod tenant;
mod tend;

pub use self::{
    all_stores::{InStore, StoreCounts},
    home::{Rule, StoreRecord, Stores},
    job::StoreJob,
    moves::{Move, MoveState},
    place::PlaceRecord,
    roster::{Member, Roster},
    tenant::{Tenant, TenantTransaction},
};
