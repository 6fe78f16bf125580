//! What is planned of a flow: its nodes, and for whom they wait; checked when it is enqueued.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::gather::Many;
use crate::{
    define::{JobType, Place},
    enqueue::{hooks::call_hooks, options::EnqueueOptions, row::Encoded, system::Awaited},
    error::Error,
    trace::TraceContext,
};

/// What becomes of the nodes after one that dies, that is, becomes a dead letter. Default: [`Hold`](Self::Hold).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfDead {
    /// They wait on: requeued, it may complete yet. If it is discarded, they are cancelled.
    #[default]
    Hold,
    /// They are cancelled, and what waits for them in turn.
    Cancel,
    /// They go on as if it had completed, also if it is cancelled or expires. What it would have given is missing ([`Of::ended`](crate::Of::ended)).
    Continue,
}

impl IfDead {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Continue => "continue",
        }
    }
}

/// What a flow, its nested flows and its nodes write to.
pub(super) struct Plan {
    /// Of this process.
    pub(super) flow: u64,
    name: String,
    graph: Mutex<Graph>,
}

#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Planned>,
    pub(super) nested: Vec<Within>,
}

/// A node to be.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) job: Result<Encoded, Error>,
    pub(super) options: EnqueueOptions,
    pub(super) if_dead: IfDead,
    /// The nested flow that it is in.
    within: Option<usize>,
    pub(super) waits: Vec<(Before, Edge)>,
    /// What it waits for that it cannot wait for.
    fault: Option<Error>,
    pub(super) many: Option<Many>,
}

/// A nested flow.
pub(super) struct Within {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    /// What its first nodes wait for.
    after: Vec<Before>,
}

/// Who may be waited for.
#[derive(Clone, Copy)]
pub(super) enum Before {
    Node(usize),
    /// All nodes of a nested flow after which no other of it comes.
    Nested(usize),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Edge {
    pub(super) on_dead: bool,
    pub(super) gives: bool,
}

/// The number of a flow, and a place in it.
#[derive(Clone, Copy)]
pub struct Where(pub(super) u64, pub(super) Before);

/// Whoever waits: a node, or all first nodes of a nested flow.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    Node(usize),
    Nested(usize),
}

impl Plan {
    pub(super) fn new(flow: u64, name: String) -> Self {
        Self { flow, name, graph: Mutex::default() }
    }

    pub(super) fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node; returns its place, and its name with those of the flows that it is in.
    pub(super) fn add<J: JobType>(
        &self,
        within: Option<usize>,
        name: &str,
        job: Result<Encoded, Error>,
        many: Option<Many>,
    ) -> (usize, String) {
        let mut options = EnqueueOptions::of::<J>();
        call_hooks(&mut options);
        options.system = Some(Awaited::NodeOf(self.name.clone()));
        let mut graph = self.graph();
        let name = within.map_or_else(|| name.to_owned(), |within| format!("{}/{name}", graph.nested[within].name));
        let (waits, if_dead) = (Vec::new(), IfDead::default());
        graph.nodes.push(Planned { name: name.clone(), job, options, if_dead, within, waits, fault: None, many });
        (graph.nodes.len() - 1, name)
    }

    pub(super) fn nest(&self, within: Option<usize>, name: &str) -> usize {
        let mut graph = self.graph();
        let name = within.map_or_else(|| name.to_owned(), |within| format!("{}/{name}", graph.nested[within].name));
        graph.nested.push(Within { name, parent: within, after: Vec::new() });
        graph.nested.len() - 1
    }

    /// Says that one waits for another, of the flow with this number.
    pub(super) fn wait(&self, who: Waiting, Where(flow, before): Where, edge: Edge) {
        let mut graph = self.graph();
        match who {
            Waiting::Nested(at) if flow == self.flow => graph.nested[at].after.push(before),
            Waiting::Node(at) if flow == self.flow => graph.nodes[at].waits.push((before, edge)),
            Waiting::Node(at) => graph.nodes[at].fault = Some(cannot_wait("of another flow")),
            // Said of each of its nodes, for a nested flow is no node.
            Waiting::Nested(at) => graph.nested[at].after.push(Before::Node(usize::MAX)),
        }
    }

    pub(super) fn give(&self, at: usize, place: Place) {
        self.wait(Waiting::Node(at), Where(place.flow, Before::Node(place.node)), Edge { on_dead: false, gives: true });
    }
}

fn cannot_wait(value: &str) -> Error {
    let (what, range) = ("a node that it waits for", "added to the same flow before it");
    Error::OutOfRange { what, value: value.to_owned(), range }
}

/// A flow as it is written.
pub(super) struct Checked {
    pub(super) names: Vec<String>,
    pub(super) jobs: Vec<Encoded>,
    pub(super) options: Vec<EnqueueOptions>,
    pub(super) edges: Edges,
    /// Those that are many, with the places of their nodes.
    pub(super) many: Vec<(usize, Many)>,
}

/// Edges as the database takes them: places count from 1.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) sources: Vec<i32>,
    pub(super) targets: Vec<i32>,
    pub(super) on_dead: Vec<bool>,
    pub(super) if_dead: Vec<&'static str>,
    pub(super) gives: Vec<bool>,
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

/// Finds out who waits for whom, and what is wrong with any of them.
pub(super) fn checked(nodes: Vec<Planned>, nested: &[Within], carried: Option<&TraceContext>) -> Result<Checked, Error> {
    let waits = edges(&nodes, nested)?;
    let mut checked = Checked { names: Vec::new(), jobs: Vec::new(), options: Vec::new(), edges: Edges::default(), many: Vec::new() };
    let policies: Vec<IfDead> = nodes.iter().map(|node| node.if_dead).collect();
    for (at, (node, into)) in nodes.into_iter().zip(waits).enumerate() {
        let Planned { name, job, mut options, fault, many, .. } = node;
        let of_node = |source| Error::Node { node: name.clone(), source: Box::new(source) };
        options.carry(carried);
        let sound = fault.map_or(Ok(()), Err).and_then(|()| options.check()).and_then(|()| check_seal(&options, &into));
        sound.map_err(of_node)?;
        if let Some(mut many) = many {
            many.options.carry(carried);
            many.options.check().map_err(of_node)?;
            checked.many.push((at, many));
        }
        for (source, edge) in into {
            checked.edges.push((source, at), edge, policies[source]);
        }
        checked.jobs.push(job.map_err(of_node)?);
        checked.options.push(options);
        checked.names.push(name);
    }
    Ok(checked)
}

/// Of each node, those that it waits for.
fn edges(nodes: &[Planned], nested: &[Within]) -> Result<Vec<BTreeMap<usize, Edge>>, Error> {
    let of = |(at, node): (usize, &Planned)| {
        let mut into = BTreeMap::new();
        for (before, edge) in &node.waits {
            add(&mut into, (*before, *edge), at, (nodes, nested))?;
        }
        for flow in flows(node.within, nested) {
            // Others of it are behind its first ones.
            if !into.keys().any(|source| flows(nodes[*source].within, nested).any(|within| within == flow)) {
                for before in &nested[flow].after {
                    add(&mut into, (*before, Edge::default()), at, (nodes, nested))?;
                }
            }
        }
        Ok(into)
    };
    let named =
        |(at, node): (usize, &Planned)| of((at, node)).map_err(|source| Error::Node { node: node.name.clone(), source: Box::new(source) });
    nodes.iter().enumerate().map(named).collect()
}

/// Adds what a node waits for, which stands before it.
fn add(
    into: &mut BTreeMap<usize, Edge>,
    (before, edge): (Before, Edge),
    at: usize,
    (nodes, nested): (&[Planned], &[Within]),
) -> Result<(), Error> {
    for source in sources(before, nodes, nested)? {
        if source >= at {
            return Err(cannot_wait(if source == usize::MAX { "of another flow" } else { "added later" }));
        }
        let known = into.entry(source).or_default();
        *known = Edge { on_dead: known.on_dead || edge.on_dead, gives: known.gives || edge.gives };
    }
    Ok(())
}

/// The nested flows that something is in, from the innermost on.
fn flows(within: Option<usize>, nested: &[Within]) -> impl Iterator<Item = usize> {
    std::iter::successors(within, |within| nested[*within].parent)
}

/// The nodes that are waited for.
fn sources(before: Before, nodes: &[Planned], nested: &[Within]) -> Result<Vec<usize>, Error> {
    let flow = match before {
        Before::Node(node) => return Ok(vec![node]),
        Before::Nested(flow) => flow,
    };
    let inside = |node: &Planned| flows(node.within, nested).any(|within| within == flow);
    let mut all: BTreeSet<usize> = (0..nodes.len()).filter(|at| inside(&nodes[*at])).collect();
    if all.is_empty() {
        return Err(cannot_wait("a nested flow without nodes"));
    }
    let waited: Vec<Before> = nodes.iter().filter(|node| inside(node)).flat_map(|node| &node.waits).map(|(before, _)| *before).collect();
    for before in waited {
        match before {
            Before::Node(source) => drop(all.remove(&source)),
            Before::Nested(source) => {
                all.retain(|at| !flows(nodes[*at].within, nested).any(|within| within == source));
            }
        }
    }
    Ok(all.into_iter().collect())
}

/// What is sealed cannot be written into.
fn check_seal(options: &EnqueueOptions, edges: &BTreeMap<usize, Edge>) -> Result<(), Error> {
    if options.sealing().is_some() && edges.values().any(|edge| edge.gives) {
        let why = "what another node gave cannot be put into it; give it a reference".to_owned();
        return Err(Error::Sealing { job_type: options.job_type, why });
    }
    Ok(())
}
