//! A flow in a flow.

use std::{fmt, sync::Arc};

use super::{
    gather::Gather,
    node::Node,
    plan::{Before, Edge, Plan, Waiting, Where},
    source::{Sealed, Source},
};
use crate::define::JobType;

/// A flow in a [`Flow`](crate::Flow): a name before those of its nodes, and one thing to wait for and that waits. From
/// [`Flow::nested`](crate::Flow::nested).
///
/// It is enqueued with the flow that it is in, and its nodes are nodes of that. What is [`after`](Node::after) it waits for those of its nodes after
/// which no other of it comes; and what it is [`after`](Self::after) is waited for by those of its nodes that wait for no other of it.
///
/// ```
/// # use queue_core::{Flow, Nested, job};
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
    pub(super) plan: Arc<Plan>,
    pub(super) at: usize,
}

impl Nested {
    pub(super) fn within(plan: &Arc<Plan>, within: Option<usize>, name: &str) -> Self {
        Self { plan: Arc::clone(plan), at: plan.nest(within, name) }
    }

    /// As [`Flow::add`](crate::Flow::add).
    pub fn add<J: JobType>(&mut self, name: impl Into<String>, job: J) -> Node<J> {
        Node::add(&self.plan, Some(self.at), name.into(), job)
    }

    /// As [`Flow::add_all`](crate::Flow::add_all).
    pub fn add_all<J, I>(&mut self, name: impl Into<String>, jobs: I) -> Node<Gather>
    where
        J: JobType,
        I: IntoIterator<Item = J>,
        I::IntoIter: Send + 'static,
    {
        Node::add_all(&self.plan, Some(self.at), &name.into(), jobs.into_iter())
    }

    /// A flow in this one.
    #[must_use = "its nodes are added to it"]
    pub fn nested(&mut self, name: impl Into<String>) -> Self {
        Self::within(&self.plan, Some(self.at), &name.into())
    }

    /// Its first nodes wait until that node, or all of that nested flow, has completed: those of it that wait for no other of it.
    #[must_use = "it returns what was changed"]
    pub fn after(self, source: &impl Source) -> Self {
        self.plan.wait(Waiting::Nested(self.at), source.place(), Edge::default());
        self
    }
}

impl Source for Nested {}

impl Sealed for Nested {
    fn place(&self) -> Where {
        Where(self.plan.flow, Before::Nested(self.at))
    }
}

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nested").field("name", &self.plan.graph().nested[self.at].name).finish_non_exhaustive()
    }
}
