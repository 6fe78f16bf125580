//! The store: its schema's name in statements, its channels, its migrations, its roles, and a transaction on a connection of the caller's. Knows
//! nothing of jobs.

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
    citus::{ClusterNode, Owner, locate, place, relay},
    migrate::migrate,
    migration::Migration,
    pooler::{Listening, NO_SESSION, is_refused_setting, mixes_up},
    roles::Roles,
    store::{Store, check_name},
};
pub(crate) use self::{
    citus::apply_each,
    session::{Connection, Session, in_transaction},
};
