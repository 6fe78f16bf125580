//! What jobs can be enqueued on, and how one is referred to.

mod job_ref;

use sqlx::{PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection};

pub use self::job_ref::JobRef;
use crate::{
    context::{JobTransaction, TransactionGuard},
    schema::{Connection, Store},
};

/// What a job can be enqueued on: `&pool`, `&mut connection`, `&mut transaction`, or a connection borrowed from a pool.
///
/// ```compile_fail
/// # use queue_core::{job, Job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
/// # async fn example(tx: sqlx::Transaction<'_, sqlx::Postgres>) {
/// Tick.enqueue(tx).await; // `&mut tx`
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a job cannot be enqueued on `{Self}`",
    label = "give `&pool`, `&mut connection` or `&mut transaction`",
    note = "a transaction is lent, not given away: `.enqueue(&mut tx)`; where `tx` is a `&mut` already: `.enqueue(&mut *tx)`",
    note = "connections of another version of sqlx are other types: this crate has 0.9, which is `queue_core::sqlx`"
)]
pub trait IntoConnection<'c>: sealed::Sealed {
    #[doc(hidden)]
    fn into_connection(self) -> Connection<'c>;

    /// For which tenant, and in which store, if it is for one.
    #[doc(hidden)]
    fn tenant(&self) -> Option<(Store, String)> {
        None
    }
}

/// The key under which a job's metadata have its tenant.
pub(crate) const TENANT: &str = "of_tenant";

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

pub(crate) mod sealed {
    use sqlx::{PgConnection, PgPool, Postgres, Transaction, pool::PoolConnection};

    use crate::context::{JobTransaction, TransactionGuard};

    pub trait Sealed {}
    impl Sealed for &PgPool {}
    impl Sealed for &mut PgConnection {}
    impl Sealed for &mut Transaction<'_, Postgres> {}
    impl Sealed for &mut PoolConnection<Postgres> {}
    impl Sealed for &mut TransactionGuard<'_> {}
    impl Sealed for &mut JobTransaction {}
}
