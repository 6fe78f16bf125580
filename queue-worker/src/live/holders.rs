//! Finds the sessions that hold locks.

use queue_core::Store;

use super::{StoreConnection, bounded};

/// A table with a lock on it or on one of its rows, and the session that holds it, if known.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct LockHolder {
    pub(crate) relation: String,
    pub(crate) pid: Option<i32>,
    pub(crate) role: Option<String>,
    pub(crate) application: Option<String>,
}

/// Finds sessions that have locked tables against writers.
pub(crate) async fn lock_holders(link: &mut StoreConnection, store: Store) -> sqlx::Result<Vec<LockHolder>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/lock_holders.sql")));
    let holders = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(holders)
}
