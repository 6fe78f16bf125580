//! Plan of a flow: its nodes and edges. The plan is checked when the flow is enqueued.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::gather::ManyJobs;
use crate::{
    define::{JobType, NodeRef},
    enqueue::{hooks::call_hooks, options::EnqueueOptions, row::EncodedJob, system::Membership},
    error::Error,
    trace::TraceContext,
};

/// Policy for the dependents of a node that became a dead letter. The dependents are the nodes that wait for that node. Default:
/// [`Hold`](Self::Hold).
///
/// ```
/// # use queue_core::{flow::{Flow, IfDead}, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Step(u8);
/// let mut flow = Flow::new("import");
/// let translate = flow.add("translate", Step(1)).if_dead(IfDead::Continue);
/// flow.add("publish", Step(2)).after(&translate); // runs even if `translate` becomes a dead letter
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IfDead {
    /// The dependents keep waiting, because the dead letter may be requeued and complete. If the dead letter is discarded, the dependents
    /// are cancelled.
    #[default]
    Hold,
    /// The dependents are cancelled, and so are all nodes that wait for the dependents.
    Cancel,
    /// The dependents run as if the node had completed. They also run if the node is cancelled or expires. The node's output is then
    /// missing ([`NodeOutput::ended`](crate::flow::NodeOutput::ended)).
    Continue,
}

impl IfDead {
    pub(super) fn sql_name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Continue => "continue",
        }
    }
}

/// State shared by a flow, its nested flows and its nodes.
pub(super) struct FlowPlan {
    /// Number of the flow, unique within this process.
    pub(super) flow: u64,
    name: String,
    graph: Mutex<FlowGraph>,
}

#[derive(Default)]
pub(super) struct FlowGraph {
    pub(super) nodes: Vec<PlannedNode>,
    pub(super) nested: Vec<NestedFlow>,
}

/// Node that has not been enqueued yet.
pub(super) struct PlannedNode {
    pub(super) name: String,
    pub(super) job: Result<EncodedJob, Error>,
    pub(super) options: EnqueueOptions,
    pub(super) if_dead: IfDead,
    /// Index of the innermost nested flow that contains the node; `None` if no nested flow contains it.
    within: Option<usize>,
    pub(super) waits: Vec<(EdgeSource, Edge)>,
    /// Error caused by an invalid edge, reported when the flow is enqueued.
    fault: Option<Error>,
    pub(super) many: Option<ManyJobs>,
}

pub(super) struct NestedFlow {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    /// Nodes and nested flows for which the roots of this nested flow wait.
    after: Vec<EdgeSource>,
}

/// Source of an edge: a node, or all sinks of a nested flow.
#[derive(Clone, Copy)]
pub(super) enum EdgeSource {
    Node(usize),
    /// Sinks of a nested flow: the nodes for which no other node of the nested flow waits.
    Nested(usize),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Edge {
    pub(super) on_dead: bool,
    pub(super) passes_output: bool,
}

/// Source of an edge, with the number of the flow that contains the source.
#[derive(Clone, Copy)]
pub struct SourcePosition(pub(super) u64, pub(super) EdgeSource);

/// Target of an edge: a node, or all roots of a nested flow (nodes that wait for no other node of the nested flow).
#[derive(Clone, Copy)]
pub(super) enum EdgeTarget {
    Node(usize),
    Nested(usize),
}

impl FlowPlan {
    pub(super) fn new(flow: u64, name: String) -> Self {
        Self { flow, name, graph: Mutex::default() }
    }

    pub(super) fn graph(&self) -> MutexGuard<'_, FlowGraph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a node. Returns the node's index and its full name, which includes the names of the enclosing nested flows.
    pub(super) fn add<J: JobType>(
        &self,
        within: Option<usize>,
        name: &str,
        job: Result<EncodedJob, Error>,
        many: Option<ManyJobs>,
    ) -> (usize, String) {
        let mut options = EnqueueOptions::for_type::<J>();
        call_hooks(&mut options);
        options.system = Some(Membership::NodeOf(self.name.clone()));
        let mut graph = self.graph();
        let name = within.map_or_else(|| name.to_owned(), |within| format!("{}/{name}", graph.nested[within].name));
        let (waits, if_dead) = (Vec::new(), IfDead::default());
        graph.nodes.push(PlannedNode { name: name.clone(), job, options, if_dead, within, waits, fault: None, many });
        (graph.nodes.len() - 1, name)
    }

    pub(super) fn add_nested(&self, within: Option<usize>, name: &str) -> usize {
        let mut graph = self.graph();
        let name = within.map_or_else(|| name.to_owned(), |within| format!("{}/{name}", graph.nested[within].name));
        graph.nested.push(NestedFlow { name, parent: within, after: Vec::new() });
        graph.nested.len() - 1
    }

    /// Adds an edge. The source must belong to this flow; otherwise the enqueue fails later.
    pub(super) fn add_edge(&self, who: EdgeTarget, SourcePosition(flow, before): SourcePosition, edge: Edge) {
        let mut graph = self.graph();
        match who {
            EdgeTarget::Nested(at) if flow == self.flow => graph.nested[at].after.push(before),
            EdgeTarget::Node(at) if flow == self.flow => graph.nodes[at].waits.push((before, edge)),
            EdgeTarget::Node(at) => graph.nodes[at].fault = Some(invalid_source("of another flow")),
            // The source belongs to another flow. Errors name a node, and a nested flow is not a node, so an invalid source is stored
            // instead. The roots of the nested flow then report the error.
            EdgeTarget::Nested(at) => graph.nested[at].after.push(EdgeSource::Node(usize::MAX)),
        }
    }

    pub(super) fn add_output_edge(&self, at: usize, place: NodeRef) {
        self.add_edge(
            EdgeTarget::Node(at),
            SourcePosition(place.flow, EdgeSource::Node(place.node)),
            Edge { on_dead: false, passes_output: true },
        );
    }
}

fn invalid_source(value: &str) -> Error {
    let (what, range) = ("a node that it waits for", "added to the same flow before it");
    Error::OutOfRange { what, value: value.to_owned(), range }
}

/// Flow whose nodes and edges have been checked, ready to be written.
pub(super) struct CheckedFlow {
    pub(super) names: Vec<String>,
    pub(super) jobs: Vec<EncodedJob>,
    pub(super) options: Vec<EnqueueOptions>,
    pub(super) edges: Edges,
    /// Nodes with many jobs, each with its node index.
    pub(super) many: Vec<(usize, ManyJobs)>,
}

/// Edges as parameters of the SQL statement. Node indices start at 1.
#[derive(Default)]
pub(super) struct Edges {
    pub(super) sources: Vec<i32>,
    pub(super) targets: Vec<i32>,
    pub(super) on_dead: Vec<bool>,
    pub(super) if_dead: Vec<&'static str>,
    pub(super) passes_output: Vec<bool>,
}

impl Edges {
    fn push(&mut self, (source, target): (usize, usize), edge: Edge, if_dead: IfDead) {
        self.sources.push(source as i32 + 1);
        self.targets.push(target as i32 + 1);
        self.on_dead.push(edge.on_dead);
        self.if_dead.push(if_dead.sql_name());
        self.passes_output.push(edge.passes_output);
    }
}

/// Replaces edges from and to nested flows with edges between their nodes, and checks all nodes.
pub(super) fn resolve(nodes: Vec<PlannedNode>, nested: &[NestedFlow], carried: Option<&TraceContext>) -> Result<CheckedFlow, Error> {
    let waits = edges(&nodes, nested)?;
    let mut checked = CheckedFlow { names: Vec::new(), jobs: Vec::new(), options: Vec::new(), edges: Edges::default(), many: Vec::new() };
    let policies: Vec<IfDead> = nodes.iter().map(|node| node.if_dead).collect();
    for (at, (node, into)) in nodes.into_iter().zip(waits).enumerate() {
        let PlannedNode { name, job, mut options, fault, many, .. } = node;
        let of_node = |source| Error::Node { node: name.clone(), source: Box::new(source) };
        options.add_trace(carried);
        let sound = fault.map_or(Ok(()), Err).and_then(|()| options.check()).and_then(|()| check_seal(&options, &into));
        sound.map_err(of_node)?;
        if let Some(mut many) = many {
            many.options.add_trace(carried);
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

/// Returns the incoming edges of each node, keyed by the source node.
fn edges(nodes: &[PlannedNode], nested: &[NestedFlow]) -> Result<Vec<BTreeMap<usize, Edge>>, Error> {
    let of = |(at, node): (usize, &PlannedNode)| {
        let mut into = BTreeMap::new();
        for (before, edge) in &node.waits {
            add_sources(&mut into, (*before, *edge), at, (nodes, nested))?;
        }
        for flow in enclosing_flows(node.within, nested) {
            // A node that waits for another node of the nested flow is not a root.
            if !into.keys().any(|source| enclosing_flows(nodes[*source].within, nested).any(|within| within == flow)) {
                for before in &nested[flow].after {
                    add_sources(&mut into, (*before, Edge::default()), at, (nodes, nested))?;
                }
            }
        }
        Ok(into)
    };
    let named = |(at, node): (usize, &PlannedNode)| {
        of((at, node)).map_err(|source| Error::Node { node: node.name.clone(), source: Box::new(source) })
    };
    nodes.iter().enumerate().map(named).collect()
}

/// Adds an edge to the node `at` from each node of the source `before`. Fails unless all source nodes were added before the node `at`.
fn add_sources(
    into: &mut BTreeMap<usize, Edge>,
    (before, edge): (EdgeSource, Edge),
    at: usize,
    (nodes, nested): (&[PlannedNode], &[NestedFlow]),
) -> Result<(), Error> {
    for source in sources(before, nodes, nested)? {
        if source >= at {
            return Err(invalid_source(if source == usize::MAX { "of another flow" } else { "added later" }));
        }
        let known = into.entry(source).or_default();
        *known = Edge { on_dead: known.on_dead || edge.on_dead, passes_output: known.passes_output || edge.passes_output };
    }
    Ok(())
}

/// Returns the nested flows that enclose a node or nested flow, from the innermost to the outermost.
fn enclosing_flows(within: Option<usize>, nested: &[NestedFlow]) -> impl Iterator<Item = usize> {
    std::iter::successors(within, |within| nested[*within].parent)
}

/// Returns the nodes that the edge source `before` denotes: a single node, or the sinks of a nested flow.
fn sources(before: EdgeSource, nodes: &[PlannedNode], nested: &[NestedFlow]) -> Result<Vec<usize>, Error> {
    let flow = match before {
        EdgeSource::Node(node) => return Ok(vec![node]),
        EdgeSource::Nested(flow) => flow,
    };
    let inside = |node: &PlannedNode| enclosing_flows(node.within, nested).any(|within| within == flow);
    let mut all: BTreeSet<usize> = (0..nodes.len()).filter(|at| inside(&nodes[*at])).collect();
    if all.is_empty() {
        return Err(invalid_source("a nested flow without nodes"));
    }
    let waited: Vec<EdgeSource> =
        nodes.iter().filter(|node| inside(node)).flat_map(|node| &node.waits).map(|(before, _)| *before).collect();
    for before in waited {
        match before {
            EdgeSource::Node(source) => drop(all.remove(&source)),
            EdgeSource::Nested(source) => {
                all.retain(|at| !enclosing_flows(nodes[*at].within, nested).any(|within| within == source));
            }
        }
    }
    Ok(all.into_iter().collect())
}

/// Rejects a sealed payload that contains outputs of other nodes, because the database cannot insert an output into a sealed payload.
fn check_seal(options: &EnqueueOptions, edges: &BTreeMap<usize, Edge>) -> Result<(), Error> {
    if options.sealing().is_some() && edges.values().any(|edge| edge.passes_output) {
        let why = "the output of another node cannot be inserted into a sealed payload; pass a reference instead".to_owned();
        return Err(Error::Sealing { job_type: options.job_type, why });
    }
    Ok(())
}
