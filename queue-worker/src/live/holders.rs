//! Finds sessions that hold or await locks on the store's tables.

use queue_core::Store;

use super::{StoreConnection, bounded};

/// Session that holds or awaits a lock on a table or on its rows, with the table's name. The other fields are `None` if the session is
/// unknown.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct LockHolder {
    pub(crate) relation: String,
    pub(crate) pid: Option<i32>,
    pub(crate) role: Option<String>,
    pub(crate) application: Option<String>,
}

/// Returns the sessions that hold or await locks that block writes to the store's tables.
pub(crate) async fn lock_holders(link: &mut StoreConnection, store: Store) -> sqlx::Result<Vec<LockHolder>> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/lock_holders.sql")));
    let holders = bounded(statement.fetch_all(link.get().await?)).await;
    link.note(holders)
}
