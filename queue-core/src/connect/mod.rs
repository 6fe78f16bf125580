//! Connections on which jobs can be enqueued, and references to jobs.

mod job_ref;
mod migrate;

use sqlx::{PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection};

pub use self::{job_ref::JobRef, migrate::migrate};
use crate::{
    context::{JobTransaction, TransactionGuard},
    schema::{Connection, Store},
};

/// Connection for enqueues and for operations on jobs: `&pool`, `&mut connection`, `&mut transaction`, or a connection borrowed from a
/// pool.
///
/// ```compile_fail
/// # use queue_core::{job, Job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
/// # async fn example(tx: sqlx::Transaction<'_, sqlx::Postgres>) {
/// Tick.enqueue(tx).await; // `&mut tx`
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection to the store",
    label = "pass `&pool`, `&mut connection` or `&mut transaction`",
    note = "transactions are passed by reference: `.enqueue(&mut tx)`; if `tx` is already a `&mut`: `.enqueue(&mut *tx)`",
    note = "a `Queue` is not a connection: `queue.pool()` is its pool, and `queue.job(id)` has the operations on one job",
    note = "connections of other sqlx versions are different types: this crate uses sqlx 0.9, re-exported as `queue_core::sqlx`"
)]
pub trait IntoConnection<'c>: sealed::Sealed {
    #[doc(hidden)]
    fn into_connection(self) -> Connection<'c>;

    /// Returns the tenant's store and key, if the connection belongs to a tenant.
    #[doc(hidden)]
    fn tenant(&self) -> Option<(Store, String)> {
        None
    }
}

/// Metadata key under which a job stores its tenant.
pub(crate) const TENANT: &str = "of_tenant";

/// Type of the jobs that hold ordering keys while a tenant moves to the store; see `stores/hold.sql`.
pub(crate) const KEY_HOLD: &str = "tenant:move";

impl<'c> IntoConnection<'c> for &'c PgPool {
    fn into_connection(self) -> Connection<'c> {
        Connection::Pool(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut PgConnection {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut Transaction<'_, Postgres> {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut TransactionGuard<'_> {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut JobTransaction {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for &'c mut PoolConnection<Postgres> {
    fn into_connection(self) -> Connection<'c> {
        Connection::One(self)
    }
}

impl<'c> IntoConnection<'c> for Connection<'c> {
    fn into_connection(self) -> Connection<'c> {
        self
    }
}

pub(crate) mod sealed {
    use sqlx::{PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection};

    use crate::{
        context::{JobTransaction, TransactionGuard},
        schema::Connection,
    };

    pub trait Sealed {}
    impl Sealed for &PgPool {}
    impl Sealed for Connection<'_> {}
    impl Sealed for &mut PgConnection {}
    impl Sealed for &mut Transaction<'_, Postgres> {}
    impl Sealed for &mut PoolConnection<Postgres> {}
    impl Sealed for &mut TransactionGuard<'_> {}
    impl Sealed for &mut JobTransaction {}
}
