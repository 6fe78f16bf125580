//! Lists the nodes of a flow, and cancels flows.

use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    define::JobId,
    error::Error,
    results::{QueueConnection, QueueJob},
};

/// Maximum number of nodes that [`QueueJob::flow`] returns.
const MAX_NODES: i32 = 10_000;

/// Node of a [`Flow`](crate::flow::Flow).
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for node in Queue::new(pool).job(job).flow().await? {
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
    /// State of the node's job, or the last recorded state if the job no longer exists. `None` if no state was recorded.
    pub state: Option<String>,
    /// Names of the nodes that must complete before this node runs.
    pub after: Vec<String>,
    /// Names of the nodes that must fail before this node runs. A node fails if its job dies, is cancelled or expires.
    pub on_dead: Vec<String>,
    /// Names of the nodes in `after` and `on_dead` that this node is still waiting for.
    pub waits: Vec<String>,
    /// Number of jobs of a node with many jobs; `None` for other nodes.
    pub jobs: Option<i64>,
    /// Number of jobs already counted as finished, for a node with many jobs; `None` for other nodes.
    pub over: Option<i64>,
}

impl<C: QueueConnection> QueueJob<'_, C> {
    /// Returns the first ten thousand nodes of the flow that contains the job, in insertion order. The list is empty if the job belongs to
    /// no flow.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::PgPool, flow: queue_core::flow::FlowHandle) -> Result<(), queue_core::Error> {
    /// use queue_core::Queue;
    ///
    /// for node in Queue::new(&pool).job(flow.id()).flow().await? {
    ///     println!("{}: {} {}", node.name, node.id, node.state.as_deref().unwrap_or("gone"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn flow(&self) -> Result<Vec<FlowNode>, Error> {
        self.first_nodes(MAX_NODES).await
    }

    /// Returns at most `most` nodes of the flow that contains the job, like [`QueueJob::flow`].
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn first_nodes(&self, most: i32) -> Result<Vec<FlowNode>, Error> {
        let statement = sqlx::query_as(self.queue.store.sql(include_str!("../../sql/nodes.sql"))).bind(self.id).bind(most);
        statement.fetch_all(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))
    }

    /// Cancels all unfinished jobs of the flow that contains the job. Returns the number of affected jobs. Running jobs become cancelling.
    /// To cancel only one node and its dependents, cancel the node's job.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn cancel_flow(&self) -> Result<u64, Error> {
        let statement = sqlx::query_scalar::<_, i32>(self.queue.store.sql(include_str!("../../sql/cancel_flow.sql"))).bind(self.id);
        let count = statement.fetch_one(&mut *self.queue.connection().await?).await.map_err(|error| explain(error, self.queue.store))?;
        Ok(u64::try_from(count).unwrap_or_default())
    }
}
