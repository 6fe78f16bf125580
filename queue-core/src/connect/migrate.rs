//! Migration of stores on any connection: creates a new store, or updates an existing store to this release.

use super::IntoConnection;
use crate::{
    error::Error,
    schema::{
        Store,
        migrate::{MAX_LOCK_RETRY, migrate_with},
    },
};

/// Applies all missing migrations and returns the versions applied.
///
/// Several processes can call this function concurrently. One process migrates. The other processes wait and then find nothing to do. A
/// new store is created in one transaction. On an existing store, each migration runs in a separate transaction and waits at most 50 ms
/// for a lock. A blocked migration is retried until one minute after the call. If the caller has an open transaction, all migrations are
/// part of this transaction and no migration is retried.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// queue_core::migrate(&pool, queue_core::Store::default()).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns [`Error::Encoding`], [`Error::NoRights`] or [`Error::RowSecurity`] if the database or the login is unsuitable. Returns
/// [`Error::NewerSchema`], [`Error::ChangedMigration`] or [`Error::ForeignSchema`] if the schema does not match this release. Returns
/// [`Error::SchemaInUse`] if other sessions hold locks for too long, and an error if a statement fails. A failed migration changes
/// nothing.
pub async fn migrate(on: impl IntoConnection<'_>, store: Store) -> Result<Vec<i32>, Error> {
    migrate_with(&mut *on.into_connection().into_session().await?, store, &[], MAX_LOCK_RETRY).await
}
