//! Flows, looked at and cancelled.

use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// The most nodes that are looked at.
const MOST: i32 = 10_000;

/// A node of a [`Flow`](crate::Flow).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct FlowNode {
    /// Its name.
    pub name: String,
    /// Its job.
    pub id: JobId,
    /// The state of its job; of one that is gone, the last that it came to, if that is known.
    pub state: Option<String>,
    /// The nodes that it waits for, or has waited for.
    pub after: Vec<String>,
    /// The nodes that have to die, or had to, before it runs.
    pub on_dead: Vec<String>,
    /// Those of both that it waits for still.
    pub waits: Vec<String>,
    /// Of a node that is many: how many jobs it is.
    pub jobs: Option<i64>,
    /// How many of these are over, as far as they are counted.
    pub over: Option<i64>,
}

/// The nodes of the flow that this job belongs to, in the order in which they were added: the first ten thousand. None if it belongs to no flow.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, flow: queue_core::FlowHandle) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for node in operate::flow(&pool, Store::default(), flow.id()).await? {
///     println!("{}: {} {}", node.name, node.id, node.state.as_deref().unwrap_or("gone"));
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn flow(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<FlowNode>, Error> {
    first_nodes(on, store, job, MOST).await
}

/// As [`flow`], and not more than so many.
///
/// # Errors
/// The database's.
pub async fn first_nodes(on: impl IntoConnection<'_>, store: Store, job: JobId, most: i32) -> Result<Vec<FlowNode>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/nodes.sql"))).bind(job).bind(most);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Cancels all jobs of the flow that this job belongs to and that are not over; returns how many. Those that run are told to stop. To cancel a node
/// with all that hangs on it, cancel its job.
///
/// # Errors
/// The database's.
pub async fn cancel_flow(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<u64, Error> {
    let statement = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/cancel_flow.sql"))).bind(job);
    let mut on = on.into_connection();
    let count = statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    Ok(u64::try_from(count).unwrap_or_default())
}
