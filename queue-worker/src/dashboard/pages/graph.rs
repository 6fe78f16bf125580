//! Flow graph, rendered on the server without scripts. Each node is placed to the right of its dependencies. Maps nodes to coordinates.
//! Performs no I/O.

use std::collections::HashMap;

use queue_core::operate::FlowNode;

use crate::dashboard::display;

/// Maximum number of nodes in a graph. The command line lists all nodes.
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
    /// Whether a drawn node is unfinished or the flow has nodes that are not drawn.
    pub(super) is_unfinished: bool,
    /// Text alternative to the graph for screen readers.
    pub(super) label: String,
}

pub(super) struct NodeBox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) whole: String,
    pub(super) state: String,
    /// State of the node, with its number of finished jobs and its total number of jobs.
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
    let places = layout(&before);
    let boxes: Vec<NodeBox> = drawn.iter().zip(&places).map(|(node, place)| node_box(node, *place, this)).collect();
    let edges =
        before.iter().enumerate().flat_map(|(target, before)| before.iter().map(move |(source, on_dead)| (*source, target, *on_dead)));
    let edges =
        edges.map(|(source, target, on_dead)| line(&boxes[source], &boxes[target], on_dead, is_waiting(&drawn[target], &drawn[source])));
    let finished = drawn.iter().filter(|node| node.state.as_deref().is_some_and(is_finished)).count();
    Graph {
        width: boxes.iter().map(|one| one.x).max().unwrap_or(0) + WIDTH + MARGIN,
        height: boxes.iter().map(|one| one.y).max().unwrap_or(0) + HEIGHT + MARGIN,
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

/// Returns the indexes of a node's dependencies. The flag is `true` if the node runs only after the dependency becomes a dead letter.
fn dependencies(node: &FlowNode, at: &HashMap<&str, usize>) -> Vec<(usize, bool)> {
    let of = |names: &'_ [String], on_dead| -> Vec<(usize, bool)> {
        names.iter().filter_map(|name| Some((*at.get(&**name)?, on_dead))).collect()
    };
    [of(&node.after, false), of(&node.on_dead, true)].concat()
}

/// Assigns a column and a row to each node. Each node is placed to the right of its dependencies and close to their average row.
/// Dependencies must precede their dependents in `before`.
fn layout(before: &[Vec<(usize, bool)>]) -> Vec<(usize, usize)> {
    let mut columns: Vec<usize> = Vec::new();
    for of in before {
        columns.push(of.iter().map(|(source, _)| columns.get(*source).map_or(0, |column| column + 1)).max().unwrap_or(0));
    }
    let mut places: Vec<(usize, usize)> = columns.iter().map(|column| (*column, 0)).collect();
    for column in 0..=columns.iter().copied().max().unwrap_or(0) {
        let mut here: Vec<(f64, usize)> = Vec::new();
        for (node, of) in before.iter().enumerate().filter(|(node, _)| columns[*node] == column) {
            let rows: usize = of.iter().map(|(source, _)| places[*source].1).sum();
            here.push((rows as f64 / of.len().max(1) as f64, node));
        }
        here.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (row, (_, node)) in here.into_iter().enumerate() {
            places[node].1 = row;
        }
    }
    places
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

fn line(source: &NodeBox, target: &NodeBox, on_dead: bool, open: bool) -> GraphEdge {
    let (from, to, middle) = (source.x + WIDTH, target.x, (source.x + WIDTH).midpoint(target.x));
    let (high, low) = (source.y + HEIGHT / 2, target.y + HEIGHT / 2);
    let class = match (on_dead, open) {
        (false, true) => "open",
        (false, false) => "over",
        (true, true) => "open death",
        (true, false) => "over death",
    };
    GraphEdge { class, path: format!("M{from} {high} C{middle} {high} {middle} {low} {to} {low}") }
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
    fn nodes_are_right_of_their_dependencies_without_overlap() {
        let before = [vec![], vec![], vec![(0, false)], vec![(0, false), (1, true)], vec![(2, false), (3, false)]];
        let places = layout(&before);
        assert_eq!(places.iter().map(|(column, _)| *column).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
        for (node, of) in before.iter().enumerate() {
            assert!(of.iter().all(|(source, _)| places[*source].0 < places[node].0));
        }
        let mut all = places.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), places.len());
    }
}
