//! Layout of the flow graph. Each node is placed to the right of its dependencies. The graph is rendered on the server, without scripts.
//! Performs no I/O.

use std::{collections::HashMap, fmt::Write as _};

use queue_core::operate::FlowNode;

use crate::dashboard::display;

/// Maximum number of nodes in a graph. The `flow` command lists up to ten thousand nodes.
pub(super) const MAX_NODES: i32 = 200;

const WIDTH: usize = 168;
const HEIGHT: usize = 38;
/// Horizontal distance between the left edges of adjacent columns, in SVG units.
const COLUMN_STEP: usize = WIDTH + 56;
const ROW_STEP: usize = HEIGHT + 14;
const MARGIN: usize = 8;
/// Maximum number of characters of a name in a node's box.
const MAX_NAME: usize = 22;

pub(super) struct Graph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<NodeBox>,
    pub(super) edges: Vec<GraphEdge>,
    /// Whether the flow has more nodes than the graph shows.
    pub(super) is_cut: bool,
    /// Whether a drawn node is unfinished, or the flow has nodes that are not drawn and may be unfinished.
    pub(super) is_unfinished: bool,
    /// Text alternative to the graph for screen readers.
    pub(super) label: String,
}

pub(super) struct NodeBox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) whole: String,
    pub(super) state: String,
    /// State of the node. For a node with many jobs, also contains the number of finished jobs and the total number of jobs.
    pub(super) subtitle: String,
    pub(super) is_this: bool,
    pub(super) x: usize,
    pub(super) y: usize,
}

pub(super) struct GraphEdge {
    pub(super) class: &'static str,
    pub(super) path: String,
}

/// Lays out the graph of a flow. Highlights the node whose job id is `this`.
pub(super) fn graph(nodes: &[FlowNode], this: &str) -> Graph {
    let drawn = &nodes[..nodes.len().min(MAX_NODES as usize)];
    let at: HashMap<&str, usize> = drawn.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
    let before: Vec<Vec<(usize, bool)>> = drawn.iter().map(|node| dependencies(node, &at)).collect();
    let layout = Layout::new(&before);
    let boxes: Vec<NodeBox> = drawn.iter().zip(&layout.nodes).map(|(node, place)| node_box(node, *place, this)).collect();
    let edges = layout.edges.iter().map(|edge| {
        let (source, target) = (edge.source, edge.target);
        line(&boxes[source], &edge.bends, &boxes[target], edge.on_dead, is_waiting(&drawn[target], &drawn[source]))
    });
    let finished = drawn.iter().filter(|node| node.state.as_deref().is_some_and(is_finished)).count();
    Graph {
        width: boxes.iter().map(|one| one.x).max().unwrap_or(0) + WIDTH + MARGIN,
        height: MARGIN + layout.rows * ROW_STEP,
        edges: edges.collect(),
        is_cut: nodes.len() > drawn.len(),
        is_unfinished: nodes.len() > drawn.len() || drawn.iter().any(|node| node.state.as_deref().is_some_and(|state| !is_finished(state))),
        label: format!("{} nodes, {finished} finished", drawn.len()),
        boxes,
    }
}

fn is_finished(state: &str) -> bool {
    matches!(state, "completed" | "dead" | "cancelled" | "expired")
}

/// Returns the index of each dependency, and whether the node runs only if the dependency fails.
fn dependencies(node: &FlowNode, at: &HashMap<&str, usize>) -> Vec<(usize, bool)> {
    let of = |names: &'_ [String], on_dead| -> Vec<(usize, bool)> {
        names.iter().filter_map(|name| Some((*at.get(&**name)?, on_dead))).collect()
    };
    [of(&node.after, false), of(&node.on_dead, true)].concat()
}

/// Maximum total number of bends in a graph. Limits the size of the page, because a graph may have thousands of edges.
const MAX_BENDS: usize = 500;

/// Column and row of a box, or of a bend of an edge.
type Place = (usize, usize);

/// Positions of a graph's nodes and edges.
struct Layout {
    nodes: Vec<Place>,
    edges: Vec<PlacedEdge>,
    /// Number of rows of the longest column.
    rows: usize,
}

/// Edge between two nodes. The edge has a bend in each column between the nodes, so that no box covers the edge. If all edges of a flow
/// together would need more than [`MAX_BENDS`] bends, no edge has bends.
struct PlacedEdge {
    source: usize,
    target: usize,
    on_dead: bool,
    bends: Vec<Place>,
}

impl Layout {
    /// Places each node to the right of its dependencies, close to their average row. Dependencies must precede their dependents in
    /// `before`.
    fn new(before: &[Vec<(usize, bool)>]) -> Self {
        let mut columns: Vec<usize> = Vec::new();
        for of in before {
            columns.push(of.iter().map(|(source, _)| columns.get(*source).map_or(0, |column| column + 1)).max().unwrap_or(0));
        }
        let mut nodes: Vec<Place> = columns.iter().map(|column| (*column, 0)).collect();
        let mut edges: Vec<PlacedEdge> = Vec::new();
        for (target, of) in before.iter().enumerate() {
            edges.extend(of.iter().map(|(source, on_dead)| PlacedEdge { source: *source, target, on_dead: *on_dead, bends: Vec::new() }));
        }
        let crossed = |edge: &PlacedEdge| columns[edge.target] - columns[edge.source] - 1;
        let has_bends = edges.iter().map(crossed).sum::<usize>() <= MAX_BENDS;
        let mut rows = 0;
        for column in 0..=columns.iter().copied().max().unwrap_or(0) {
            let mut here: Vec<(f64, Item)> = Vec::new();
            for (node, of) in before.iter().enumerate().filter(|(node, _)| columns[*node] == column) {
                let sources = edges.iter().filter(|edge| edge.target == node).map(|edge| edge.last_row(&nodes)).sum::<usize>();
                here.push((sources as f64 / of.len().max(1) as f64, Item::Node(node)));
            }
            for (at, edge) in edges.iter().enumerate() {
                if has_bends && columns[edge.source] < column && column < columns[edge.target] {
                    here.push((edge.last_row(&nodes) as f64, Item::Bend(at)));
                }
            }
            here.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            rows = rows.max(here.len());
            for (row, (_, item)) in here.into_iter().enumerate() {
                match item {
                    Item::Node(node) => nodes[node].1 = row,
                    Item::Bend(edge) => edges[edge].bends.push((column, row)),
                }
            }
        }
        Self { nodes, edges, rows }
    }
}

/// Item in a column: a node, identified by its index, or a bend, identified by the index of its edge.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Node(usize),
    Bend(usize),
}

impl PlacedEdge {
    /// Returns the row of the edge's last bend so far. Without a bend, returns the row of the source node.
    fn last_row(&self, nodes: &[Place]) -> usize {
        self.bends.last().unwrap_or(&nodes[self.source]).1
    }
}

fn node_box(node: &FlowNode, (column, row): (usize, usize), this: &str) -> NodeBox {
    let state = node.state.clone().unwrap_or_else(|| "gone".to_owned());
    let subtitle = match (node.over, node.jobs) {
        (Some(over), Some(jobs)) => format!("{state}, {over} of {jobs}"),
        _ => state.clone(),
    };
    let (whole, id) = (display::line(&node.name), node.id.to_string());
    let is_this = id == this;
    NodeBox {
        name: display::truncate(&whole, MAX_NAME),
        whole,
        state,
        subtitle,
        is_this,
        id,
        x: MARGIN + column * COLUMN_STEP,
        y: MARGIN + row * ROW_STEP,
    }
}

/// Returns whether `target` is still waiting for `source` to finish.
fn is_waiting(target: &FlowNode, source: &FlowNode) -> bool {
    target.waits.contains(&source.name)
}

fn line(source: &NodeBox, bends: &[Place], target: &NodeBox, on_dead: bool, open: bool) -> GraphEdge {
    let class = match (on_dead, open) {
        (false, true) => "open",
        (false, false) => "over",
        (true, true) => "open death",
        (true, false) => "over death",
    };
    let (mut x, mut y) = (source.x + WIDTH, source.y + HEIGHT / 2);
    let mut path = format!("M{x} {y}");
    let ends = bends.iter().map(|(column, row)| (MARGIN + column * COLUMN_STEP, MARGIN + row * ROW_STEP + HEIGHT / 2, WIDTH));
    for (to_x, to_y, straight) in ends.chain([(target.x, target.y + HEIGHT / 2, 0)]) {
        let middle = x.midpoint(to_x);
        // Writing to a string cannot fail.
        let _ = write!(path, " C{middle} {y} {middle} {to_y} {to_x} {to_y} h{straight}");
        (x, y) = (to_x + straight, to_y);
    }
    GraphEdge { class, path }
}

impl NodeBox {
    pub(super) fn text_x(&self) -> usize {
        self.x + 10
    }

    pub(super) fn name_y(&self) -> usize {
        self.y + 16
    }

    pub(super) fn subtitle_y(&self) -> usize {
        self.y + 30
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_box_covers_another_box_or_an_edge() {
        let before = [vec![], vec![], vec![(0, false)], vec![(0, false), (1, true)], vec![(2, false), (3, false), (0, true), (1, false)]];
        let layout = Layout::new(&before);
        assert_eq!(layout.nodes.iter().map(|(column, _)| *column).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
        assert_eq!(layout.edges.len(), 7, "each dependency has an edge");
        for edge in &layout.edges {
            let columns: Vec<usize> = edge.bends.iter().map(|(column, _)| *column).collect();
            let between: Vec<usize> = (layout.nodes[edge.source].0 + 1..layout.nodes[edge.target].0).collect();
            assert_eq!(columns, between, "an edge has a place in each column that it crosses");
        }
        let mut all: Vec<Place> = layout.nodes.iter().copied().chain(layout.edges.iter().flat_map(|edge| edge.bends.clone())).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), layout.rows), (count, 4));
    }

    #[test]
    fn a_flow_with_very_many_edges_has_a_bounded_drawing() {
        let before: Vec<Vec<(usize, bool)>> = (0..200).map(|node| (0..node).map(|source| (source, false)).collect()).collect();
        let layout = Layout::new(&before);
        assert_eq!((layout.edges.len(), layout.rows), (19_900, 1));
        assert!(layout.edges.iter().all(|edge| edge.bends.is_empty()));
    }
}
