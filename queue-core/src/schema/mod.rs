//! Access to a store: schema names in statements, channels, migrations, roles, and transactions on a caller's connection. This module does
//! not depend on jobs.

pub mod migrate;
mod roles;
mod applied;
mod channel;
mod citus;
mod locks;
mod migration;
mod pooler;
mod qualify;
mod session;
mod store;

pub use self::{
    channel::Channel,
    citus::{ClusterNode, StoreLocation, locate, place, relay},
    migration::Migration,
    pooler::{ListenerConnection, NO_SESSION, is_refused_setting, mixes_up},
    roles::Roles,
    store::{Store, check_name},
};
pub(crate) use self::{
    citus::apply_each,
    session::{Connection, Session, SessionConnection, in_transaction},
};
