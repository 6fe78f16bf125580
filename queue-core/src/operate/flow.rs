//! List of a flow's nodes, and cancellation of a flow.

use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// Maximum number of nodes that [`flow`] returns.
const MAX_NODES: i32 = 10_000;

/// Node of a [`Flow`](crate::Flow).
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for node in operate::flow(pool, Store::default(), job).await? {
///     if !node.waits.is_empty() {
///         println!("{} is waiting for {}", node.name, node.waits.join(", "));
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct FlowNode {
    /// Name of the node.
    pub name: String,
    /// Job id of the node.
    pub id: JobId,
    /// State of the node's job. If the job no longer exists, this is the last known state.
    pub state: Option<String>,
    /// Names of the nodes that must complete before this node runs.
    pub after: Vec<String>,
    /// Names of the nodes that must fail before this node runs: become dead letters, be cancelled or expire.
    pub on_dead: Vec<String>,
    /// Names of the nodes in `after` and `on_dead` that this node is still waiting for.
    pub waits: Vec<String>,
    /// Number of jobs of a node with many jobs; `None` for other nodes.
    pub jobs: Option<i64>,
    /// Number of finished jobs of a node with many jobs, as counted so far; `None` for other nodes.
    pub over: Option<i64>,
}

/// Returns the first ten thousand nodes of the flow that contains the job, in insertion order. The list is empty if the job belongs to no
/// flow.
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
/// Returns [`Error::Database`] if the query fails.
pub async fn flow(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<FlowNode>, Error> {
    first_nodes(on, store, job, MAX_NODES).await
}

/// Returns the same as [`flow`], but at most `most` nodes.
///
/// # Errors
/// Returns [`Error::Database`] if the query fails.
pub async fn first_nodes(on: impl IntoConnection<'_>, store: Store, job: JobId, most: i32) -> Result<Vec<FlowNode>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/nodes.sql"))).bind(job).bind(most);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}

/// Cancels all unfinished jobs of the flow that contains the job. Returns the number of affected jobs. Running jobs become cancelling. To
/// cancel only one node and its dependents, cancel the node's job.
///
/// # Errors
/// Returns [`Error::Database`] if the query fails.
pub async fn cancel_flow(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<u64, Error> {
    let statement = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../../sql/cancel_flow.sql"))).bind(job);
    let mut on = on.into_connection();
    let count = statement.fetch_one(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))?;
    Ok(u64::try_from(count).unwrap_or_default())
}
