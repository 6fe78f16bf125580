//! The store: its schema's name in statements, its channels, its migrations, its roles, and a transaction on a connection of the caller's. Knows
//! nothing of jobs.

pub mod migrate;
mod roles;
mod applied;
mod channel;
mod concurrent;
mod locks;
mod migration;
mod pooler;
mod qualify;
mod session;
mod store;

pub(crate) use self::session::{Connection, Session, in_transaction};
pub use self::{
    channel::Channel,
    migrate::migrate,
    migration::Migration,
    pooler::{Listening, NO_SESSION, is_refused_setting, mixes_up},
    roles::Roles,
    store::{Store, check_name},
};
