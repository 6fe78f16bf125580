//! A flow: jobs that are enqueued together, of which some wait for the ends of others.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    JobHandle,
    bulk::write_within,
    explain,
    hooks::call_hooks,
    insert,
    options::{EnqueueOptions, enqueue_methods},
    places::{Rows, Written},
    row::{Encoded, Row},
};
use crate::{
    connect::{IntoConnection, JobRef},
    define::{Durability, Enqueued, JobId, JobType, Of, Place, places_in},
    error::Error,
    schema::{Connection, Session, Store},
    trace,
};

/// Jobs to be enqueued together, of which some wait for the ends of others. A job of it is a node, and has a name.
///
/// Nodes that wait for nobody are ready at once, the others are parked until those before them are over. A node can only wait for nodes that were
/// added before it, so there are no cycles.
///
/// ```no_run
/// # use queue_core::{Flow, IfDead, Of, job};
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
///     page: Of<String>,
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
/// let parse = flow.add("parse", Parse { page: fetch.output() }); // waits for it, and is given what it returned
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
    parts: Arc<Parts>,
}

/// What the nodes of a flow write to as well.
struct Parts {
    /// Of this process.
    flow: u64,
    nodes: Mutex<Vec<Part>>,
}

struct Part {
    name: String,
    job: Option<Encoded>,
    options: EnqueueOptions,
    if_dead: IfDead,
    /// By their sources.
    edges: BTreeMap<usize, Edge>,
    fault: Option<Error>,
}

#[derive(Clone, Copy, Default)]
struct Edge {
    on_dead: bool,
    gives: bool,
}

/// What becomes of the nodes after one that dies, that is, becomes a dead letter. Default: [`Hold`](Self::Hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfDead {
    /// They wait on: requeued, it may complete yet. If it is discarded, they are cancelled.
    #[default]
    Hold,
    /// They are cancelled, and what waits for them in turn.
    Cancel,
    /// They go on as if it had completed, also if it is cancelled or expires. What it would have given is missing ([`Of::ended`]).
    Continue,
}

impl IfDead {
    fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Continue => "continue",
        }
    }
}

impl Flow {
    /// An empty flow for the default store. The name is for people: it is in the metadata of each of its jobs, as `node_of`.
    pub fn new(name: impl Into<String>) -> Self {
        static FLOWS: AtomicU64 = AtomicU64::new(0);
        let parts = Parts { flow: FLOWS.fetch_add(1, Ordering::Relaxed), nodes: Mutex::default() };
        Self { name: name.into(), store: Store::default(), durability: None, parts: Arc::new(parts) }
    }

    enqueue_methods!();

    /// Adds a job under a name of 1 to 200 bytes that no other node of the flow has. What is wrong with it is said by [`enqueue`](Self::enqueue).
    #[allow(clippy::needless_pass_by_value, reason = "a job is given away, here as everywhere")]
    pub fn add<J: JobType>(&mut self, name: impl Into<String>, job: J) -> Node<J> {
        let name = name.into();
        let (encoded, places) = places_in(|| Encoded::of(&job));
        let mut options = EnqueueOptions::of::<J>();
        call_hooks(&mut options);
        options.add_meta("node_of".to_owned(), &self.name);
        let (job, fault) = match encoded {
            Ok(job) => (Some(job), None),
            Err(error) => (None, Some(error)),
        };
        let mut nodes = self.parts.nodes();
        let at = nodes.len();
        nodes.push(Part { name: name.clone(), job, options, if_dead: IfDead::default(), edges: BTreeMap::new(), fault });
        drop(nodes);
        let node = Node { parts: Arc::clone(&self.parts), name: name.into(), at, job_type: PhantomData };
        for place in places {
            node.wait_for(place, Edge { on_dead: false, gives: true });
        }
        node
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.parts.nodes().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enqueues all of it: in your transaction, in which it exists if and only if that commits, or in one of its own.
    ///
    /// # Errors
    /// [`Error::Node`] says which node, and what is wrong with it: as of an enqueue, or that it waits for a node of another flow or one that was added
    /// later, or that what others give is to be put into a payload that is stored encrypted. The database refuses an empty flow, a name that is not
    /// one, a node that waits and has an ordering key, a fair key or a time to run at, and one whose uniqueness key is held.
    pub async fn enqueue<'c>(self, on: impl IntoConnection<'c>) -> Result<FlowHandle, Error> {
        let nodes = mem::take(&mut *self.parts.nodes());
        let span = trace::enqueue(None, None);
        let carried = trace::carried(&span);
        let (mut jobs, mut options, mut edges) = (Vec::new(), Vec::new(), Edges::default());
        let (names, policies): (Vec<_>, Vec<_>) = nodes.iter().map(|node| (node.name.clone(), node.if_dead)).unzip();
        for (at, node) in nodes.into_iter().enumerate() {
            let of_node = |source| Error::Node { node: names[at].clone(), source: Box::new(source) };
            let Part { job, options: mut said, edges: into, fault, .. } = node;
            said.carry(carried.as_ref());
            let checked = fault.map_or(Ok(()), Err).and_then(|()| said.check()).and_then(|()| check_seal(&said, &into));
            checked.map_err(of_node)?;
            jobs.extend(job);
            options.push(said);
            into.iter().for_each(|(source, edge)| edges.push((*source, at), *edge, policies[*source]));
        }
        let (store, rows) = (self.store, jobs.iter().zip(&options).enumerate());
        let rows = rows.map(|(at, (job, options))| {
            let row = Row::to(store, Cow::Borrowed(job), options, at);
            row.map_err(|source| Error::Node { node: names[at].clone(), source: Box::new(source) })
        });
        let sent = write(on.into_connection(), (store, self.durability), &options, Box::new(rows), (&names, &edges)).await;
        trace::enqueued_all(&span, sent.as_ref().map(|ids| ids.len() as u64));
        Ok(FlowHandle { store, flow: self.parts.flow, ids: sent?, names })
    }
}

/// What is sealed cannot be written into.
fn check_seal(options: &EnqueueOptions, edges: &BTreeMap<usize, Edge>) -> Result<(), Error> {
    if options.sealing().is_some() && edges.values().any(|edge| edge.gives) {
        let why = "what another node gave cannot be put into it; give it a reference".to_owned();
        return Err(Error::Sealing { job_type: options.job_type, why });
    }
    Ok(())
}

/// Edges as the database takes them: places count from 1.
#[derive(Default)]
struct Edges {
    sources: Vec<i32>,
    targets: Vec<i32>,
    on_dead: Vec<bool>,
    if_dead: Vec<&'static str>,
    gives: Vec<bool>,
}

impl Edges {
    fn push(&mut self, (source, target): (usize, usize), edge: Edge, if_dead: IfDead) {
        self.sources.push(source as i32 + 1);
        self.targets.push(target as i32 + 1);
        self.on_dead.push(edge.on_dead);
        self.if_dead.push(if_dead.word());
        self.gives.push(edge.gives);
    }
}

/// The jobs, and then their edges, in one transaction; returns the jobs' ids.
async fn write(
    on: Connection<'_>,
    (store, durability): (Store, Option<Durability>),
    options: &[EnqueueOptions],
    mut rows: Rows<'_>,
    (names, edges): (&[String], &Edges),
) -> Result<Vec<JobId>, Error> {
    let to_error = |error| explain(error, store);
    let first = insert::fill(&mut rows).await?;
    let mut session = Session::begin(on, durability.unwrap_or(Durability::Full)).await.map_err(to_error)?;
    let mut written = Written { count: 0, ids: Some(Vec::new()), outcomes: Vec::new() };
    let done = async {
        if !first.is_empty() {
            write_within(&mut session, store, options, (first, rows), &mut written).await.map_err(|error| named(error, names))?;
        }
        let ids = written.ids.take().unwrap_or_default();
        let link = sqlx::query(store.sql(include_str!("../../sql/link_flow.sql"))).bind(&ids).bind(names);
        let link = link.bind(&edges.sources).bind(&edges.targets).bind(&edges.on_dead).bind(&edges.if_dead).bind(&edges.gives);
        link.execute(session.connection()).await.map_err(to_error)?;
        Ok(ids)
    };
    match done.await {
        Ok(ids) => session.commit().await.map(|()| ids).map_err(to_error),
        Err(error) => {
            session.roll_back().await;
            Err(error)
        }
    }
}

/// An error of one of many jobs, with the name of its node.
fn named(error: Error, names: &[String]) -> Error {
    match error {
        Error::OneOfMany { index, source } if index < names.len() => Error::Node { node: names[index].clone(), source },
        other => other,
    }
}

impl Parts {
    fn nodes(&self) -> MutexGuard<'_, Vec<Part>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("name", &self.name).field("nodes", &self.len()).finish_non_exhaustive()
    }
}

/// A job of a [`Flow`] that is not enqueued yet.
pub struct Node<J> {
    parts: Arc<Parts>,
    name: Arc<str>,
    at: usize,
    job_type: PhantomData<fn() -> J>,
}

impl<J: JobType> Node<J> {
    /// What it returns, as a field of a payload that is added later: the place is an edge too. Do not add the same edge with [`after`](Self::after).
    pub fn output(&self) -> Of<J::Output> {
        Of::place(Arc::clone(&self.name), Place { flow: self.parts.flow, node: self.at })
    }
}

impl<J> Node<J> {
    /// It waits until that node has completed. See [`IfDead`] for what happens if that dies. One that is cancelled or expires, or is discarded, cancels
    /// the nodes after it, unless it is to [`Continue`](IfDead::Continue).
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn after<K>(self, source: &Node<K>) -> Self {
        self.wait_for(source.place(), Edge::default());
        self
    }

    /// It runs only if that node dies, is cancelled or expires; if that completes, it is cancelled. It has run once: a dead letter that is requeued after
    /// that does not run it again.
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn on_dead<K>(self, source: &Node<K>) -> Self {
        self.wait_for(source.place(), Edge { on_dead: true, gives: false });
        self
    }

    /// What becomes of the nodes after it if it dies. Default: [`IfDead::Hold`].
    #[allow(clippy::return_self_not_must_use, reason = "mostly the last word on a node")]
    pub fn if_dead(self, if_dead: IfDead) -> Self {
        if let Some(part) = self.parts.nodes().get_mut(self.at) {
            part.if_dead = if_dead;
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
        if let Some(part) = self.parts.nodes().get_mut(self.at) {
            say(&mut part.options);
        }
        self
    }

    fn place(&self) -> Place {
        Place { flow: self.parts.flow, node: self.at }
    }

    fn wait_for(&self, source: Place, edge: Edge) {
        let mut nodes = self.parts.nodes();
        let Some(part) = nodes.get_mut(self.at) else { return };
        if source.flow != self.parts.flow || source.node >= self.at {
            let value = if source.flow == self.parts.flow { "added later" } else { "of another flow" };
            let range = "added to the same flow before it";
            part.fault = Some(Error::OutOfRange { what: "a node that it waits for", value: value.to_owned(), range });
            return;
        }
        let known = part.edges.entry(source.node).or_default();
        *known = Edge { on_dead: known.on_dead || edge.on_dead, gives: known.gives || edge.gives };
    }
}

impl<J> fmt::Debug for Node<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A flow that is enqueued: it exists once its transaction has committed.
#[derive(Clone, Debug)]
pub struct FlowHandle {
    store: Store,
    flow: u64,
    ids: Vec<JobId>,
    names: Vec<String>,
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
        assert_eq!(node.parts.flow, self.flow, "the node `{}` is of another flow", node.name);
        JobHandle::enqueued(JobRef::from_id(self.ids[node.at]).in_store(self.store), Enqueued::New)
    }

    /// The names of its nodes and their jobs, in the order in which they were added.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.names.iter().map(String::as_str).zip(self.ids.iter().copied())
    }
}
