//! Nodes of a flow that has not been enqueued yet: their payloads, their edges, and the policy for their dependents.

use std::{fmt, marker::PhantomData, sync::Arc};

use super::{
    gather::{Gather, ManyJobs},
    plan::{Edge, EdgeSource, EdgeTarget, FlowPlan, IfDead, SourcePosition},
    source::{Sealed, Source},
};
use crate::{
    define::{JobType, NodeOutput, NodeRef, collect_node_refs},
    enqueue::{options::EnqueueOptions, row::EncodedJob},
};

/// Node of a [`Flow`](crate::flow::Flow): a job that has not been enqueued yet.
///
/// ```
/// # use queue_core::{flow::{Flow, IfDead}, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Step(u8);
/// let mut flow = Flow::new("order");
/// let charge = flow.add("charge", Step(1)).if_dead(IfDead::Cancel);
/// flow.add("ship", Step(2)).after(&charge).with(|job| job.queue("warehouse"));
/// flow.add("apologize", Step(3)).on_dead(&charge);
/// ```
pub struct Node<J> {
    plan: Arc<FlowPlan>,
    name: Arc<str>,
    pub(super) at: usize,
    job_type: PhantomData<fn() -> J>,
}

impl<J> Source for Node<J> {}

impl<J> Sealed for Node<J> {
    fn place(&self) -> SourcePosition {
        SourcePosition(self.plan.flow, EdgeSource::Node(self.at))
    }
}

impl<J: JobType> Node<J> {
    #[allow(clippy::needless_pass_by_value, reason = "jobs are passed by value throughout the API")]
    pub(super) fn add(plan: &Arc<FlowPlan>, within: Option<usize>, name: String, job: J) -> Self {
        let (encoded, places) = collect_node_refs(|| EncodedJob::encode(&job));
        let (at, name) = plan.add::<J>(within, &name, encoded, None);
        for place in places {
            plan.add_output_edge(at, place);
        }
        Self { plan: Arc::clone(plan), name: name.into(), at, job_type: PhantomData }
    }

    /// Returns a placeholder for this node's output, for use in the payload of a later node. The later node then also waits for this node,
    /// so do not add the same edge with [`after`](Self::after).
    pub fn output(&self) -> NodeOutput<J::Output> {
        NodeOutput::pending(Arc::clone(&self.name), NodeRef { flow: self.plan.flow, node: self.at })
    }
}

impl<J> Node<J> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn flow(&self) -> u64 {
        self.plan.flow
    }

    /// Makes this node wait until `source` has completed. The source is a node, or all nodes of a nested flow. If a source node becomes a
    /// dead letter, its [`IfDead`] policy applies. If a source node is cancelled, expires or is discarded, this node is cancelled unless
    /// the policy is [`Continue`](IfDead::Continue).
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn after(self, source: &impl Source) -> Self {
        self.plan.add_edge(EdgeTarget::Node(self.at), source.place(), Edge::default());
        self
    }

    /// Makes this node run only if `source` becomes a dead letter, is cancelled or expires. If `source` completes, this node is
    /// cancelled. This node runs at most once: requeuing the dead letter afterwards does not run this node again.
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn on_dead<K>(self, source: &Node<K>) -> Self {
        self.plan.add_edge(EdgeTarget::Node(self.at), source.place(), Edge { on_dead: true, passes_output: false });
        self
    }

    /// Sets the policy for this node's dependents if this node becomes a dead letter. Default: [`IfDead::Hold`].
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn if_dead(self, if_dead: IfDead) -> Self {
        if let Some(node) = self.plan.graph().nodes.get_mut(self.at) {
            node.if_dead = if_dead;
        }
        self
    }

    /// Overrides options of the job type for this job, such as the queue, the priority or the number of attempts.
    ///
    /// ```
    /// # use queue_core::{flow::Flow, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// let mut flow = Flow::new("ticks");
    /// flow.add("first", Tick).with(|job| job.queue("clock").max_attempts(1));
    /// ```
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn with(self, say: impl FnOnce(&mut EnqueueOptions) -> &mut EnqueueOptions) -> Self {
        if let Some(node) = self.plan.graph().nodes.get_mut(self.at) {
            say(&mut node.options);
        }
        self
    }
}

impl Node<Gather> {
    pub(super) fn add_all<J: JobType>(
        plan: &Arc<FlowPlan>,
        within: Option<usize>,
        name: &str,
        jobs: impl Iterator<Item = J> + Send + 'static,
    ) -> Self {
        let (at, name) = plan.add::<Gather>(within, name, EncodedJob::encode(&Gather {}), Some(ManyJobs::new(jobs)));
        let node = Self { plan: Arc::clone(plan), name: name.into(), at, job_type: PhantomData };
        node.many(|_| ());
        node
    }

    /// Limits the number of the node's jobs that are ready or running at the same time. The minimum is 1. Default: unlimited.
    ///
    /// Jobs beyond the limit are parked. They become ready in insertion order as other jobs of the node end. Jobs that are waiting for a
    /// retry count towards the limit. Dead letters do not.
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn in_flight(self, most: u32) -> Self {
        self.many(|many| many.in_flight = Some(most));
        self
    }

    /// Overrides options of the job type for all jobs of the node. The node itself uses the queue of its jobs. If the node waits for other
    /// nodes, its jobs can have neither an ordering key nor a start time.
    ///
    /// ```
    /// # use queue_core::{flow::Flow, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// let mut flow = Flow::new("ticks");
    /// flow.add_all("many", (0..10).map(|_| Tick)).each(|job| job.priority(-5));
    /// ```
    #[allow(clippy::return_self_not_must_use, reason = "usually the last call on a node")]
    pub fn each(self, say: impl FnOnce(&mut EnqueueOptions) -> &mut EnqueueOptions) -> Self {
        self.many(|many| {
            say(&mut many.options);
        });
        self
    }

    /// Applies `change` to the description of the node's jobs. Then sets the node's queue to the queue of its jobs, so that the workers of
    /// the jobs also run the node.
    fn many(&self, change: impl FnOnce(&mut ManyJobs)) {
        let mut graph = self.plan.graph();
        let Some(node) = graph.nodes.get_mut(self.at) else { return };
        if let Some(many) = &mut node.many {
            change(many);
            node.options.queue.clone_from(&many.options.queue);
        }
    }
}

impl<J> fmt::Debug for Node<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}
