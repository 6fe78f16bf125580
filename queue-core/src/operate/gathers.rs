//! What a durable job has mapped.

use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// The jobs that one step of a [durable](crate::Options::durable) job has mapped, and how many came to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobGather {
    /// The step that mapped them.
    pub name: String,
    /// How many there are; `None` while more are spawned.
    pub total: Option<i64>,
    /// How many are not counted as over.
    pub need: i64,
    /// How many completed.
    pub completed: i64,
    /// How many are dead letters.
    pub dead: i64,
    /// How many were cancelled, or have expired.
    pub cancelled: i64,
    /// How many may run at once; `None` for all.
    pub most: Option<i32>,
}

/// What a job has mapped, by the names of the steps: the first thousand. None of a job that is gone, or not durable.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for gather in operate::gathers(&pool, Store::default(), job).await? {
///     println!("{}: {} are not over", gather.name, gather.need);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn gathers(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<JobGather>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/gathers.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
