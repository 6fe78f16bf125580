//! `flow` command: shows the nodes of a flow as a tree or as a Mermaid graph, or cancels the flow's jobs.

use std::{collections::HashMap, fmt::Write as _};

use clap::Args;
use queue_core::{JobId, JobRef, Queue, operate::FlowNode};
use serde_json::json;

use super::{
    audit::AuditedTransaction,
    open::{open_for_reading, open_store},
    print,
    problem::Problem,
    settings::Settings,
    values::{OutputArgs, counted_jobs, id},
};
use crate::escape;

pub(super) const MANUAL: &str = "\
Examples:
  queue-worker flow 1879032461361152001             its nodes, each below its last dependency, with unfinished dependencies
  queue-worker flow 1879032461361152001 --mermaid   as a Mermaid graph
  queue-worker flow 1879032461361152001 --cancel    cancel all of its unfinished jobs

ID is the flow or any of its jobs. To cancel a node with all nodes that depend on it, cancel its job. Exit code 3 if the job belongs to
no flow.";

#[derive(Args)]
pub(super) struct FlowArgs {
    /// Id of the flow or of any of its jobs
    #[arg(value_parser = id)]
    id: JobId,
    /// Print a Mermaid graph
    #[arg(long, conflicts_with = "cancel")]
    mermaid: bool,
    /// Cancel all unfinished jobs of the flow
    #[arg(long)]
    cancel: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn flow(settings: &Settings, FlowArgs { id, mermaid, cancel, output }: FlowArgs) -> Result<(), Problem> {
    let (database, store) = if cancel { open_store(settings).await? } else { open_for_reading(settings).await? };
    let nodes = database.queue().store(store).job(id).flow().await?;
    if nodes.is_empty() {
        JobRef::from_id(id).in_store(store).find_without_payload(database.pool()).await?;
        return Err(Problem::refused(format!("job {id} belongs to no flow; `queue-worker show {id}` shows the job itself")));
    }
    if cancel {
        let mut tx = AuditedTransaction::begin(database.pool(), store).await?;
        let count = Queue::on(&mut tx).store(store).job(id).cancel_flow().await?;
        tx.commit("cancelled", format!("flow {id}"), count).await?;
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

/// Maximum indentation of the tree in levels. Keeps long chains readable.
const MAX_INDENT: usize = 30;

/// Formats the nodes as a tree. Each node appears once, below the last of its parents.
fn tree(nodes: &[FlowNode]) -> String {
    let mut below: HashMap<Option<&str>, Vec<&FlowNode>> = HashMap::new();
    for node in nodes {
        below.entry(parents(node).last()).or_default().push(node);
    }
    let mut open: Vec<(usize, &FlowNode)> = below.remove(&None).unwrap_or_default().into_iter().rev().map(|node| (0, node)).collect();
    let mut lines = Vec::new();
    while let Some((depth, node)) = open.pop() {
        lines.push(format!("{}{}", "  ".repeat(depth.min(MAX_INDENT)), line(node)));
        open.extend(below.remove(&Some(&*node.name)).unwrap_or_default().into_iter().rev().map(|child| (depth + 1, child)));
    }
    lines.join("\n")
}

/// Returns the names of the nodes that this node depends on: nodes that must complete, and nodes that must fail.
fn parents(node: &FlowNode) -> impl Iterator<Item = &str> {
    node.after.iter().chain(&node.on_dead).map(String::as_str)
}

fn line(node: &FlowNode) -> String {
    let mut text = format!("{}  {}  {}", escape::line(&node.name), node.id, state(node));
    if let (Some(jobs), Some(finished)) = (node.jobs, node.over) {
        let _ = write!(text, "  {finished} of {jobs} jobs are finished");
    }
    let named = |names: &[String]| names.iter().map(|name| escape::line(name)).collect::<Vec<_>>().join(", ");
    if !node.on_dead.is_empty() {
        let _ = write!(text, "  on the death of {}", named(&node.on_dead));
    }
    if !node.waits.is_empty() {
        let _ = write!(text, "  waits for {}", named(&node.waits));
    }
    text
}

fn state(node: &FlowNode) -> &str {
    node.state.as_deref().unwrap_or("gone")
}

fn graph(nodes: &[FlowNode]) -> String {
    let places: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
    let mut lines = vec!["graph LR".to_owned()];
    for (at, node) in nodes.iter().enumerate() {
        let name = escape::line(&node.name).replace('&', "#amp;").replace('"', "#quot;").replace('<', "#lt;");
        lines.push(format!("  n{at}[\"{name}: {}\"]", state(node)));
        let from = |names: &'_ [String], arrow: &str| -> Vec<String> {
            names.iter().filter_map(|name| places.get(&**name)).map(|source| format!("  n{source} {arrow} n{at}")).collect()
        };
        lines.extend(from(&node.after, "-->"));
        lines.extend(from(&node.on_dead, "-. dies .->"));
    }
    lines.join("\n")
}
