//! Builder for flows of nodes and nested flows.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    gather::Gather,
    handle::FlowHandle,
    nested::Nested,
    node::Node,
    plan::{FlowGraph, FlowPlan, PlannedNode, resolve},
    write::write,
};
use crate::{
    connect::IntoConnection,
    define::{Durability, JobType},
    enqueue::options::enqueue_methods,
    error::Error,
    schema::Store,
    trace,
};

/// Set of jobs that are enqueued together and depend on each other. Each job is a node and has a name.
///
/// Nodes that wait for no other node are enqueued like single jobs. All other nodes are parked until the nodes on which they depend have
/// finished. A node can only wait for nodes that were added before it, so cycles are impossible.
///
/// ```no_run
/// # use queue_core::{flow::{Counts, Flow, IfDead, NodeOutput}, job};
/// # use serde::{Serialize, Deserialize};
/// #[job(send_only, output = String)]
/// #[derive(Serialize, Deserialize)]
/// struct Fetch {
///     url: String,
/// }
///
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct Parse {
///     page: NodeOutput<String>,
/// }
///
/// #[job(send_only)]
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     text: String,
/// }
///
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut flow = Flow::new("import");
/// let fetch = flow.add("fetch", Fetch { url: "https://example.org".into() });
/// let parse = flow.add("parse", Parse { page: fetch.output() }); // waits for `fetch` and receives its output
/// flow.add("done", Mail { text: "imported".into() }).after(&parse);
/// flow.add("sorry", Mail { text: "not fetched".into() }).on_dead(&fetch);
///
/// let mut tx = pool.begin().await?;
/// let flow = flow.enqueue(&mut tx).await?;
/// tx.commit().await?;
/// println!("flow {}, parsed by job {}", flow.id(), flow.job(&parse).id());
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until `enqueue` is awaited"]
pub struct Flow {
    name: String,
    store: Store,
    durability: Option<Durability>,
    plan: Arc<FlowPlan>,
}

impl Flow {
    /// Creates an empty flow for the default store. The name is informational: every job of the flow stores it, and `queue-worker show`
    /// prints it.
    pub fn new(name: impl Into<String>) -> Self {
        static FLOWS: AtomicU64 = AtomicU64::new(0);
        let name = name.into();
        let plan = FlowPlan::new(FLOWS.fetch_add(1, Ordering::Relaxed), name.clone());
        Self { name, store: Store::default(), durability: None, plan: Arc::new(plan) }
    }

    enqueue_methods!();

    /// Adds a job as a node. The name must have 1 to 200 bytes and be unique within the flow. [`enqueue`](Self::enqueue) reports an invalid
    /// name.
    pub fn add<J: JobType>(&mut self, name: impl Into<String>, job: J) -> Node<J> {
        Node::add(&self.plan, None, name.into(), job)
    }

    /// Adds many jobs of one type as one node. The node completes once all jobs have finished, regardless of their outcomes. The output
    /// of the node is the number of jobs by outcome.
    ///
    /// The jobs are encoded and written in chunks, so a node may have a hundred thousand jobs. The jobs run in parallel, at most
    /// [`in_flight`](Node::in_flight) at the same time. A node that waits for this node waits for all jobs of this node. If this node waits
    /// for another node, all jobs of this node wait as well. Use [`each`](Node::each) to override options of the job type. The payloads of
    /// the jobs cannot contain a [`NodeOutput`](crate::flow::NodeOutput).
    ///
    /// The node itself is a job of the type `queue:gather`, in the same queue as the jobs that it counts. The node occupies no worker slot
    /// while these jobs run. A dead letter counts as finished, and requeuing it does not change the counts.
    ///
    /// ```no_run
    /// # use queue_core::{flow::{Counts, Flow, NodeOutput}, job};
    /// # use serde::{Serialize, Deserialize};
    /// #[job(send_only)]
    /// #[derive(Serialize, Deserialize)]
    /// struct ImportRow {
    ///     row: u64,
    /// }
    ///
    /// #[job(send_only)]
    /// #[derive(Serialize, Deserialize)]
    /// struct Report {
    ///     rows: NodeOutput<Counts>,
    /// }
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// let mut flow = Flow::new("import");
    /// let rows = flow.add_all("rows", (0..100_000).map(|row| ImportRow { row })).in_flight(50);
    /// flow.add("report", Report { rows: rows.output() }); // after all rows
    /// flow.enqueue(&pool).await?;
    /// # Ok(()) }
    /// ```
    pub fn add_all<J, I>(&mut self, name: impl Into<String>, jobs: I) -> Node<Gather>
    where
        J: JobType,
        I: IntoIterator<Item = J>,
        I::IntoIter: Send + 'static,
    {
        Node::add_all(&self.plan, None, &name.into(), jobs.into_iter())
    }

    /// Adds a nested flow. The names of its nodes are prefixed with `name` and a slash. See [`Nested`].
    pub fn nested(&mut self, name: impl Into<String>) -> Nested {
        Nested::within(&self.plan, None, &name.into())
    }

    /// Returns the number of nodes, including the nodes of nested flows.
    pub fn len(&self) -> usize {
        self.plan.graph().nodes.len()
    }

    /// Returns whether the flow has no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enqueues the flow in your transaction, or in its own transaction. In your transaction, the flow exists if and only if the
    /// transaction commits.
    ///
    /// # Errors
    /// Returns [`Error::Node`] if a node is invalid. The error names the node and the cause. A node is invalid if its job cannot be
    /// enqueued, or if it waits for a node of another flow or a node that was added later. A sealed payload must not contain the output of
    /// another node. The database rejects an empty flow, an invalid or duplicate node name, and a node whose uniqueness key is held. It
    /// also rejects a waiting node with an ordering key, a fairness key or a start time.
    pub async fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Result<FlowHandle, Error> {
        let FlowGraph { mut nodes, nested } = mem::take(&mut *self.plan.graph());
        let (tenant, mut store) = (on.tenant(), self.store);
        for PlannedNode { options, many, .. } in nodes.iter_mut().filter(|_| tenant.is_some()) {
            for options in std::iter::once(options).chain(many.as_mut().map(|many| &mut many.options)) {
                store = options.set_tenant(tenant.clone()).unwrap_or(store);
            }
        }
        let span = trace::enqueue_span(None, None);
        let mut flow = resolve(nodes, &nested, trace::current_context(&span).as_ref())?;
        let sent = write(on.into_connection(), (store, self.durability), &mut flow).await;
        trace::record_bulk_enqueue(&span, sent.as_ref().map(|ids| ids.len() as u64));
        Ok(FlowHandle { store, flow: self.plan.flow, ids: sent?, names: flow.names })
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).field("nodes", &self.len()).finish_non_exhaustive()
    }
}
