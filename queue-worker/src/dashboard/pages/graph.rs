//! A flow as a picture, drawn here, so that it is there without scripts: each node right of those that it waits for. Pure: nodes in, numbers out.

use std::collections::HashMap;

use queue_core::operate::FlowNode;

use crate::dashboard::show;

/// More nodes than these are no picture any more; the terminal has them all.
pub(super) const DRAWN: i32 = 200;

const WIDTH: usize = 168;
const HEIGHT: usize = 38;
/// From one box to the next.
const RIGHT: usize = WIDTH + 56;
const DOWN: usize = HEIGHT + 14;
const EDGE: usize = 8;
/// As many letters as a box has room for.
const LETTERS: usize = 22;

pub(super) struct Graph {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) boxes: Vec<NodeBox>,
    pub(super) edges: Vec<Line>,
    /// Whether there are more nodes.
    pub(super) is_cut: bool,
    /// Whether any of its jobs is not over, as far as they are known.
    pub(super) goes_on: bool,
    /// What is to be seen, for those who do not see it.
    pub(super) says: String,
}

pub(super) struct NodeBox {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) whole: String,
    pub(super) state: String,
    /// Its state, and how many jobs it is.
    pub(super) below: String,
    pub(super) is_this: bool,
    pub(super) x: usize,
    pub(super) y: usize,
}

pub(super) struct Line {
    pub(super) class: &'static str,
    pub(super) path: String,
}

/// The flow that this job is in.
pub(super) fn graph(nodes: &[FlowNode], this: &str) -> Graph {
    let drawn = &nodes[..nodes.len().min(DRAWN as usize)];
    let at: HashMap<&str, usize> = drawn.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
    let before: Vec<Vec<(usize, bool)>> = drawn.iter().map(|node| before(node, &at)).collect();
    let places = places(&before);
    let boxes: Vec<NodeBox> = drawn.iter().zip(&places).map(|(node, place)| node_box(node, *place, this)).collect();
    let edges =
        before.iter().enumerate().flat_map(|(target, before)| before.iter().map(move |(source, on_dead)| (*source, target, *on_dead)));
    let edges =
        edges.map(|(source, target, on_dead)| line(&boxes[source], &boxes[target], on_dead, is_open(&drawn[target], &drawn[source])));
    let over = drawn.iter().filter(|node| node.state.as_deref().is_some_and(is_over)).count();
    Graph {
        width: boxes.iter().map(|one| one.x).max().unwrap_or(0) + WIDTH + EDGE,
        height: boxes.iter().map(|one| one.y).max().unwrap_or(0) + HEIGHT + EDGE,
        edges: edges.collect(),
        is_cut: nodes.len() > drawn.len(),
        goes_on: nodes.len() > drawn.len() || drawn.iter().any(|node| node.state.as_deref().is_some_and(|state| !is_over(state))),
        says: format!("{} nodes, of which {over} are over", drawn.len()),
        boxes,
    }
}

fn is_over(state: &str) -> bool {
    matches!(state, "completed" | "dead" | "cancelled" | "expired")
}

/// Those that a node waits for, and whether for their deaths.
fn before(node: &FlowNode, at: &HashMap<&str, usize>) -> Vec<(usize, bool)> {
    let of = |names: &'_ [String], on_dead| -> Vec<(usize, bool)> {
        names.iter().filter_map(|name| Some((*at.get(&**name)?, on_dead))).collect()
    };
    [of(&node.after, false), of(&node.on_dead, true)].concat()
}

/// Column and row of each: a node stands right of all that it waits for, and about as high as these do. They stand before it in their order.
fn places(before: &[Vec<(usize, bool)>]) -> Vec<(usize, usize)> {
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
    let below = match (node.over, node.jobs) {
        (Some(over), Some(jobs)) => format!("{state}, {over} of {jobs}"),
        _ => state.clone(),
    };
    let (whole, id) = (show::line(&node.name), node.id.to_string());
    let is_this = id == this;
    NodeBox { name: show::short(&whole, LETTERS), whole, state, below, is_this, id, x: EDGE + column * RIGHT, y: EDGE + row * DOWN }
}

/// Whether it waits for that still.
fn is_open(target: &FlowNode, source: &FlowNode) -> bool {
    target.waits.contains(&source.name)
}

fn line(source: &NodeBox, target: &NodeBox, on_dead: bool, open: bool) -> Line {
    let (from, to, middle) = (source.x + WIDTH, target.x, (source.x + WIDTH).midpoint(target.x));
    let (high, low) = (source.y + HEIGHT / 2, target.y + HEIGHT / 2);
    let class = match (on_dead, open) {
        (false, true) => "open",
        (false, false) => "over",
        (true, true) => "open death",
        (true, false) => "over death",
    };
    Line { class, path: format!("M{from} {high} C{middle} {high} {middle} {low} {to} {low}") }
}

impl NodeBox {
    pub(super) fn middle(&self) -> usize {
        self.x + 10
    }

    pub(super) fn first_line(&self) -> usize {
        self.y + 16
    }

    pub(super) fn second_line(&self) -> usize {
        self.y + 30
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stands_right_of_what_it_waits_for_and_no_two_in_one_place() {
        let before = [vec![], vec![], vec![(0, false)], vec![(0, false), (1, true)], vec![(2, false), (3, false)]];
        let places = places(&before);
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
