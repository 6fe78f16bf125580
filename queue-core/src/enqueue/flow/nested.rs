//! Nested flows: groups of nodes within a flow.

use std::{fmt, sync::Arc};

use super::{
    gather::Gather,
    node::Node,
    plan::{Edge, EdgeSource, EdgeTarget, FlowPlan, SourcePosition},
    source::{Sealed, Source},
};
use crate::define::JobType;

/// Flow within a [`Flow`](crate::flow::Flow). Created by [`Flow::nested`](crate::flow::Flow::nested). The name of the nested flow is a
/// prefix of its node names. Edges can lead from and to a nested flow as a whole.
///
/// A nested flow is enqueued with the outer flow, and its nodes are nodes of the outer flow. Its sinks are the nodes for which no other
/// node of the nested flow waits. Its roots are the nodes that wait for no other node of the nested flow. A node that runs
/// [`after`](Node::after) a nested flow waits for the sinks. If the nested flow runs [`after`](Self::after) a node, the roots wait for
/// that node.
///
/// ```
/// # use queue_core::{flow::{Flow, Nested}, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Work(u8);
/// fn bill(flow: &mut Nested) {
///     let charge = flow.add("charge", Work(1)); // its name is `bill/charge`
///     flow.add("receipt", Work(2)).after(&charge);
/// }
///
/// let mut flow = Flow::new("order");
/// let stock = flow.add("stock", Work(0));
/// let mut billing = flow.nested("bill").after(&stock); // the charge waits for it
/// bill(&mut billing);
/// flow.add("ship", Work(3)).after(&billing); // waits for the receipt
/// ```
pub struct Nested {
    pub(super) plan: Arc<FlowPlan>,
    pub(super) at: usize,
}

impl Nested {
    pub(super) fn within(plan: &Arc<FlowPlan>, within: Option<usize>, name: &str) -> Self {
        Self { plan: Arc::clone(plan), at: plan.add_nested(within, name) }
    }

    /// Adds a job as a node; see [`Flow::add`](crate::flow::Flow::add).
    pub fn add<J: JobType>(&mut self, name: impl Into<String>, job: J) -> Node<J> {
        Node::add(&self.plan, Some(self.at), name.into(), job)
    }

    /// Adds many jobs as one node; see [`Flow::add_all`](crate::flow::Flow::add_all).
    pub fn add_all<J, I>(&mut self, name: impl Into<String>, jobs: I) -> Node<Gather>
    where
        J: JobType,
        I: IntoIterator<Item = J>,
        I::IntoIter: Send + 'static,
    {
        Node::add_all(&self.plan, Some(self.at), &name.into(), jobs.into_iter())
    }

    /// Adds a flow nested in this nested flow.
    #[must_use = "its nodes are added to it"]
    pub fn nested(&mut self, name: impl Into<String>) -> Self {
        Self::within(&self.plan, Some(self.at), &name.into())
    }

    /// Makes this nested flow wait until `source` has completed. The source is a node, or all nodes of another nested flow. The roots of
    /// this nested flow then wait for the source.
    #[must_use = "returns the changed value"]
    pub fn after(self, source: &impl Source) -> Self {
        self.plan.add_edge(EdgeTarget::Nested(self.at), source.place(), Edge::default());
        self
    }
}

impl Source for Nested {}

impl Sealed for Nested {
    fn place(&self) -> SourcePosition {
        SourcePosition(self.plan.flow, EdgeSource::Nested(self.at))
    }
}

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nested").field("name", &self.plan.graph().nested[self.at].name).finish_non_exhaustive()
    }
}
