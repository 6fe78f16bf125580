//! A flow that is enqueued.

use super::node::Node;
use crate::{
    connect::JobRef,
    define::{Enqueued, JobId},
    enqueue::JobHandle,
    schema::Store,
};

/// A flow that is enqueued: it exists once its transaction has committed.
#[derive(Clone, Debug)]
pub struct FlowHandle {
    pub(super) store: Store,
    pub(super) flow: u64,
    pub(super) ids: Vec<JobId>,
    pub(super) names: Vec<String>,
}

impl FlowHandle {
    /// The flow's id: that of its first job.
    pub fn id(&self) -> JobId {
        self.ids[0]
    }

    /// The job of a node.
    ///
    /// # Panics
    /// The node is of another flow.
    pub fn job<J>(&self, node: &Node<J>) -> JobHandle<J> {
        assert_eq!(node.flow(), self.flow, "the node `{}` is of another flow", node.name());
        JobHandle::enqueued(JobRef::from_id(self.ids[node.at]).in_store(self.store), Enqueued::New)
    }

    /// The names of its nodes and their jobs, in the order in which they were added.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.names.iter().map(String::as_str).zip(self.ids.iter().copied())
    }
}
