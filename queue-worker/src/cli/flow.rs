//! `flow`: the nodes of a flow as a tree, or as a graph for Mermaid; and cancels all of it.

use std::{collections::HashMap, fmt::Write as _};

use clap::Args;
use queue_core::{
    JobId, JobRef,
    operate::{self, FlowNode},
};
use serde_json::json;

use super::{
    noted::Noted,
    open::{open_store, open_to_look},
    print,
    problem::Problem,
    settings::Settings,
    values::{Output, counted_jobs, id},
};
use crate::inert;

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker flow 1879032461361152001             its nodes, each below the last that it waits for, and what they wait for still
  queue-worker flow 1879032461361152001 --mermaid   the same as a graph, to be pasted into a page
  queue-worker flow 1879032461361152001 --cancel    cancel all of its jobs that are not over

The id is that of the flow, or of any job of it. To cancel a node with all that hangs on it, cancel its job. Exit code 3 if the job belongs to
no flow.";

#[derive(Args)]
pub(super) struct FlowArgs {
    /// The flow's id, or that of one of its jobs
    #[arg(value_parser = id)]
    id: JobId,
    /// As a graph for Mermaid
    #[arg(long, conflicts_with = "cancel")]
    mermaid: bool,
    /// Cancel all of its jobs that are not over
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn flow(settings: &Settings, FlowArgs { id, mermaid, cancel, output }: FlowArgs) -> Result<(), Problem> {
    let (database, store) = if cancel { open_store(settings).await? } else { open_to_look(settings).await? };
    let nodes = operate::flow(database.pool(), store, id).await?;
    if nodes.is_empty() {
        JobRef::from_id(id).in_store(store).find_without_payload(database.pool()).await?;
        return Err(Problem::refused(format!("job {id} belongs to no flow; `queue-worker show {id}` shows the job itself")));
    }
    if cancel {
        let mut noted = Noted::begin(database.pool(), store).await?;
        let count = operate::cancel_flow(&mut *noted, store, id).await?;
        noted.commit("cancelled", format!("flow {id}"), count).await?;
        database.close().await;
        return if output.json {
            print::json(&json!({ "cancelled": count }))
        } else {
            print::lines(&format!("cancelled {}", counted_jobs(count, false)))
        };
    }
    database.close().await;
    match (output.json, mermaid) {
        (true, _) => print::json(&nodes),
        (false, true) => print::lines(&graph(&nodes)),
        (false, false) => print::lines(&tree(&nodes)),
    }
}

/// A chain of thousands is not a page of blanks.
const DEEPEST: usize = 30;

/// Each node once, below the last of those that it waits for.
fn tree(nodes: &[FlowNode]) -> String {
    let mut below: HashMap<Option<&str>, Vec<&FlowNode>> = HashMap::new();
    for node in nodes {
        below.entry(parents(node).last()).or_default().push(node);
    }
    let mut open: Vec<(usize, &FlowNode)> = below.remove(&None).unwrap_or_default().into_iter().rev().map(|node| (0, node)).collect();
    let mut lines = Vec::new();
    while let Some((depth, node)) = open.pop() {
        lines.push(format!("{}{}", "  ".repeat(depth.min(DEEPEST)), line(node)));
        open.extend(below.remove(&Some(&*node.name)).unwrap_or_default().into_iter().rev().map(|child| (depth + 1, child)));
    }
    lines.join("\n")
}

/// Those after which it runs, and those after whose death it does.
fn parents(node: &FlowNode) -> impl Iterator<Item = &str> {
    node.after.iter().chain(&node.on_dead).map(String::as_str)
}

fn line(node: &FlowNode) -> String {
    let mut said = format!("{}  {}  {}", inert::line(&node.name), node.id, state(node));
    if let (Some(jobs), Some(over)) = (node.jobs, node.over) {
        let _ = write!(said, "  {over} of {jobs} jobs are over");
    }
    let named = |names: &[String]| names.iter().map(|name| inert::line(name)).collect::<Vec<_>>().join(", ");
    if !node.on_dead.is_empty() {
        let _ = write!(said, "  on the death of {}", named(&node.on_dead));
    }
    if !node.waits.is_empty() {
        let _ = write!(said, "  waits for {}", named(&node.waits));
    }
    said
}

fn state(node: &FlowNode) -> &str {
    node.state.as_deref().unwrap_or("gone")
}

fn graph(nodes: &[FlowNode]) -> String {
    let places: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
    let mut lines = vec!["graph LR".to_owned()];
    for (at, node) in nodes.iter().enumerate() {
        let name = inert::line(&node.name).replace('&', "#amp;").replace('"', "#quot;").replace('<', "#lt;");
        lines.push(format!("  n{at}[\"{name}: {}\"]", state(node)));
        let from = |names: &'_ [String], arrow: &str| -> Vec<String> {
            names.iter().filter_map(|name| places.get(&**name)).map(|source| format!("  n{source} {arrow} n{at}")).collect()
        };
        lines.extend(from(&node.after, "-->"));
        lines.extend(from(&node.on_dead, "-. dies .->"));
    }
    lines.join("\n")
}
