//! Handles to enqueued flows.

use super::node::Node;
use crate::{
    connect::JobRef,
    define::{EnqueueOutcome, JobId},
    enqueue::JobHandle,
    schema::Store,
};

/// Handle to an enqueued flow. The flow exists once the transaction that enqueued the flow has committed.
///
/// ```no_run
/// # use queue_core::{flow::Flow, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Step(u8);
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// let mut flow = Flow::new("order");
/// let charge = flow.add("charge", Step(1));
/// flow.add("ship", Step(2)).after(&charge);
///
/// let flow = flow.enqueue(pool).await?;
/// println!("flow {}, charged by job {}", flow.id(), flow.job(&charge).id());
/// for (name, job) in flow.jobs() {
///     println!("{name}: job {job}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FlowHandle {
    pub(super) store: Store,
    pub(super) flow: u64,
    pub(super) ids: Vec<JobId>,
    pub(super) names: Vec<String>,
}

impl FlowHandle {
    /// Returns the id of the flow, which is the id of its first job.
    pub fn id(&self) -> JobId {
        self.ids[0]
    }

    /// Returns the handle to a node's job.
    ///
    /// # Panics
    /// Panics if the node belongs to another flow.
    pub fn job<J>(&self, node: &Node<J>) -> JobHandle<J> {
        assert_eq!(node.flow(), self.flow, "the node `{}` belongs to another flow", node.name());
        JobHandle::enqueued(JobRef::from_id(self.ids[node.at]).in_store(self.store), EnqueueOutcome::New)
    }

    /// Returns the name and the job id of each node, in insertion order.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.names.iter().map(String::as_str).zip(self.ids.iter().copied())
    }
}
