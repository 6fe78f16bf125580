//! Checks `docs/SQL.md`, the reference of the SQL functions for users. The page is generated from the migrations:
//! `QUEUE_WRITE_DOCS=1 cargo test house::sql_page` writes it.

use std::{collections::BTreeMap, fmt::Write as _};

use super::read;
use crate::roles::executors;

const PAGE: &str = "docs/SQL.md";

const INTRODUCTION: &str = "\
# SQL functions

The functions of a store that programs, operators and monitors call, in the schema `queue` or that of the store. The command line, the dashboard
and `Queue` in Rust call the same functions. [ANY_LANGUAGE](ANY_LANGUAGE.md) shows them in other languages, and [OPERATIONS](OPERATIONS.md) the
operations by task. [ROLES](ROLES.md) describes the roles; the owner of the store may call every function.

Functions that are not listed belong to the protocol between a store and its workers, and change with any release. The view `queue.jobs` has all
jobs with their states.
";

/// Sections of the page with their functions.
const SECTIONS: [(&str, &[&str]); 8] = [
    ("Enqueue", &["enqueue", "enqueue_with", "try_enqueue", "enqueue_each", "enqueue_flow"]),
    ("Results and signals", &["status", "wait", "cancel", "signal", "signals"]),
    (
        "Operations on jobs",
        &[
            "find",
            "reader_find",
            "list",
            "reader_list",
            "why",
            "run_now",
            "snooze",
            "reschedule",
            "set_priority",
            "requeue",
            "discard",
            "cancel_waiting_all",
            "cancel_running_all",
            "run_now_all",
            "reschedule_all",
            "set_priority_all",
            "requeue_all",
            "discard_all",
            "cancel_flow",
        ],
    ),
    ("Parts of jobs", &["steps", "children", "gathers", "nodes", "logs"]),
    ("Queues", &["pause", "resume", "pauses", "pause_awaits", "set_capacity", "capacities", "depth", "depths"]),
    ("Limits and fairness", &["set_limit", "unset_limit", "set_limit_key", "limits", "limit_keys", "waits_for", "set_weight"]),
    ("Schedules", &["schedule", "unschedule", "pause_schedule", "resume_schedule", "skip_schedule", "run_schedule"]),
    ("Statistics", &["counts", "oldest", "backlog", "history", "quantile", "workers"]),
];

/// SQL function that a migration creates.
struct Function {
    /// Name, arguments and result.
    signature: String,
    /// Lines of the comment above the function.
    comment: Vec<String>,
}

/// Returns the functions of all migrations by name.
fn functions() -> BTreeMap<String, Function> {
    let mut found = BTreeMap::new();
    for (_, text) in super::files("queue-core/migrations", "sql") {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("create function queue.") else { continue };
            let name = super::first_word(rest);
            let head = lines[at..].iter().take_while(|line| !is_body(line));
            let signature = head.map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace("( ", "(").replace(" )", ")");
            let comment = lines[..at].iter().rev().map_while(|line| line.strip_prefix("--")).map(str::to_owned);
            let mut comment: Vec<String> = comment.collect();
            comment.reverse();
            // Callers do not pass the `caller` parameter, so the page omits it.
            let signature = signature.trim_start_matches("create function ").replace(", caller queue.caller default queue.called_by()", "");
            assert!(found.insert(name, Function { signature, comment }).is_none(), "two functions have the name of {line}");
        }
    }
    found
}

/// Returns whether a line follows the arguments and the result of a function.
fn is_body(line: &str) -> bool {
    ["  language ", "  return ", "  stable", "  set ", "as $$", "begin"].iter().any(|start| line.starts_with(start))
}

/// Writes the comment as Markdown. Indented lines become a code block.
fn write_comment(page: &mut String, comment: &[String]) {
    let mut is_block = false;
    for line in comment {
        let text = line.strip_prefix(' ').unwrap_or(line);
        let is_indented = text.starts_with("  ");
        if is_indented != is_block && (is_indented || !text.is_empty()) {
            let before = if page.ends_with("\n\n") { "" } else { "\n" };
            write!(page, "{}", if is_indented { [before, "```text\n"] } else { ["```\n", "\n"] }.concat()).unwrap();
            is_block = is_indented;
        }
        if !(text.is_empty() && (is_block || page.ends_with("\n\n"))) {
            writeln!(page, "{}", if is_block { text.strip_prefix("  ").unwrap_or(text) } else { text }).unwrap();
        }
    }
    if is_block {
        page.push_str("```\n");
    }
}

fn page() -> String {
    let functions = functions();
    let mut page = INTRODUCTION.to_owned();
    for (title, names) in SECTIONS {
        write!(page, "\n## {title}\n").unwrap();
        for name in names {
            let Function { signature, comment } = functions.get(*name).unwrap_or_else(|| panic!("there is no function {name}"));
            assert!(!comment.is_empty(), "{name} has no comment");
            write!(page, "\n### {name}\n\n```sql\n{}\n```\n\n", wrap(signature)).unwrap();
            write_comment(&mut page, comment);
            write!(page, "\nRoles: {}.\n", executors(name).join(", ")).unwrap();
        }
    }
    page
}

/// Breaks a signature after commas, into lines of at most 120 characters.
fn wrap(signature: &str) -> String {
    let mut lines = vec![String::new()];
    for part in signature.split_inclusive(", ") {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() + part.len() > 120 {
            *line = line.trim_end().to_owned();
            lines.push(format!("  {part}"));
        } else {
            line.push_str(part);
        }
    }
    lines.join("\n")
}

#[test]
fn the_page_of_sql_functions_is_that_of_the_migrations() {
    let page = page();
    if std::env::var_os("QUEUE_WRITE_DOCS").is_some() {
        std::fs::write(super::root().join(PAGE), &page).unwrap();
    }
    assert_eq!(read(PAGE), page, "write the page with QUEUE_WRITE_DOCS=1");
}
