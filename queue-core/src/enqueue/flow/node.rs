//! A job of a flow to be: for whom it waits, and what becomes of those that wait for it.

use std::{fmt, marker::PhantomData, sync::Arc};

use super::{
    gather::{Gather, Many},
    plan::{Before, Edge, IfDead, Plan, Waiting, Where},
    source::{Sealed, Source},
};
use crate::{
    define::{JobType, Of, Place, places_in},
    enqueue::{options::EnqueueOptions, row::Encoded},
};

/// A job of a [`Flow`](crate::Flow) that is not enqueued yet.
pub struct Node<J> {
    plan: Arc<Plan>,
    name: Arc<str>,
    pub(super) at: usize,
    job_type: PhantomData<fn() -> J>,
}

impl<J> Source for Node<J> {}

impl<J> Sealed for Node<J> {
    fn place(&self) -> Where {
        Where(self.plan.flow, Before::Node(self.at))
    }
}

impl<J: JobType> Node<J> {
    #[allow(clippy::needless_pass_by_value, reason = "a job is given away, here as everywhere")]
    pub(super) fn add(plan: &Arc<Plan>, within: Option<usize>, name: String, job: J) -> Self {
        let (encoded, places) = places_in(|| Encoded::of(&job));
        let (at, name) = plan.add::<J>(within, &name, encoded, None);
        for place in places {
            plan.give(at, place);
        }
        Self { plan: Arc::clone(plan), name: name.into(), at, job_type: PhantomData }
    }

    /// What it returns, as a field of a payload that is added later: the place is an edge too. Do not add the same edge with [`after`](Self::after).
    pub fn output(&self) -> Of<J::Output> {
        Of::place(Arc::clone(&self.name), Place { flow: self.plan.flow, node: self.at })
    }
}

impl<J> Node<J> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn flow(&self) -> u64 {
        self.plan.flow
    }

    /// It waits until that node, or all of that nested flow, has completed. See [`IfDead`] for what happens if that dies. One that is cancelled or
    /// expires, or is discarded, cancels the nodes after it, unless it is to [`Continue`](IfDead::Continue).
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn after(self, source: &impl Source) -> Self {
        self.plan.wait(Waiting::Node(self.at), source.place(), Edge::default());
        self
    }

    /// It runs only if that node dies, is cancelled or expires; if that completes, it is cancelled. It has run once: a dead letter that is requeued after
    /// that does not run it again.
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn on_dead<K>(self, source: &Node<K>) -> Self {
        self.plan.wait(Waiting::Node(self.at), source.place(), Edge { on_dead: true, gives: false });
        self
    }

    /// What becomes of the nodes after it if it dies. Default: [`IfDead::Hold`].
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn if_dead(self, if_dead: IfDead) -> Self {
        if let Some(node) = self.plan.graph().nodes.get_mut(self.at) {
            node.if_dead = if_dead;
        }
        self
    }

    /// Says of the job what differs from its type's options: its queue, its priority, its attempts.
    ///
    /// ```
    /// # use queue_core::{Flow, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// let mut flow = Flow::new("ticks");
    /// flow.add("first", Tick).with(|job| job.queue("clock").max_attempts(1));
    /// ```
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn with(self, say: impl FnOnce(&mut EnqueueOptions) -> &mut EnqueueOptions) -> Self {
        if let Some(node) = self.plan.graph().nodes.get_mut(self.at) {
            say(&mut node.options);
        }
        self
    }
}

impl Node<Gather> {
    pub(super) fn add_all<J: JobType>(
        plan: &Arc<Plan>,
        within: Option<usize>,
        name: &str,
        jobs: impl Iterator<Item = J> + Send + 'static,
    ) -> Self {
        let (at, name) = plan.add::<Gather>(within, name, Encoded::of(&Gather {}), Some(Many::of(jobs)));
        let node = Self { plan: Arc::clone(plan), name: name.into(), at, job_type: PhantomData };
        node.many(|_| ());
        node
    }

    /// At most so many of its jobs are ready or running at once, at least 1: the others are parked, in their order, until some have ended. Those that
    /// wait for another try count, and a dead letter does not. Default: all.
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn in_flight(self, most: u32) -> Self {
        self.many(|many| many.in_flight = Some(most));
        self
    }

    /// Says of each of its jobs what differs from their type's options; the node goes to the queue that they go to. If it waits for others, they take
    /// no ordering key and no time to run at.
    ///
    /// ```
    /// # use queue_core::{Flow, job};
    /// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
    /// let mut flow = Flow::new("ticks");
    /// flow.add_all("many", (0..10).map(|_| Tick)).each(|job| job.priority(-5));
    /// ```
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn each(self, say: impl FnOnce(&mut EnqueueOptions) -> &mut EnqueueOptions) -> Self {
        self.many(|many| {
            say(&mut many.options);
        });
        self
    }

    /// The node is in the queue of its jobs: whoever serves those sees to it.
    fn many(&self, change: impl FnOnce(&mut Many)) {
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
