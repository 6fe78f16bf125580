//! Rewrites statements for the node of a distributed store. The rewritten statements name shards and local functions directly, and
//! therefore bypass the cluster's planner.

use std::collections::BTreeMap;

/// Maps the names of a store's objects to their names on the store's node. The names of shards contain shard ids, which stay the same
/// when the store moves.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct NodeNames {
    /// Local name of each table and view, by name without schema. The local names of functions are in `calls`.
    tables: BTreeMap<String, String>,
    calls: BTreeMap<String, String>,
    /// Schema of the local functions.
    functions: String,
    /// Shard name of the fence table. The fence table is always empty.
    fence: String,
    /// Shard id of each table, by table name.
    shards: BTreeMap<String, String>,
    /// Shard id of each key constraint, by constraint name.
    keys: BTreeMap<String, String>,
}

/// Kind of an object that has a different name on the store's node.
pub(super) enum LocalName {
    Shard(String),
    Function,
    View,
    /// Key constraint of a shard, with the shard id.
    Constraint(String),
}

impl NodeNames {
    pub(super) fn new(schema: &str, named: impl IntoIterator<Item = (String, LocalName)>) -> Self {
        let functions = local_schema(schema);
        let mut home = Self { functions, ..Self::default() };
        for (name, kind) in named {
            let meant = format!("{}.{name}", home.functions);
            match kind {
                LocalName::Shard(number) => {
                    home.tables.insert(name.clone(), format!("queue.{name}_{number}"));
                    home.shards.insert(name, number);
                }
                LocalName::View => drop(home.tables.insert(name, format!("{meant}()"))),
                LocalName::Function => drop(home.calls.insert(name, meant)),
                LocalName::Constraint(number) => drop(home.keys.insert(name, number)),
            }
        }
        home.fence = home.tables.get("fence").cloned().unwrap_or_default();
        home
    }

    pub(super) fn shards(&self) -> &BTreeMap<String, String> {
        &self.shards
    }

    /// Replaces the names of the store's objects in the text. All other names stay unchanged.
    pub(super) fn replace_names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 256);
        let mut rest = text;
        while let Some(at) = rest.find("queue.") {
            let before = rest[..at].chars().next_back().or(out.chars().next_back());
            out.push_str(&rest[..at]);
            let after = &rest[at + "queue.".len()..];
            let name = &after[..after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len())];
            let is_ours = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            let behind = &after[name.len()..];
            let before = last_word(&out);
            let is_call = behind.starts_with('(') && !is_one_of(before, &["into"]);
            let is_type = !is_call && is_declared_type(&out, behind);
            match if is_call { &self.calls } else { &self.tables }.get(name).filter(|_| is_ours && !is_type) {
                Some(meant) => {
                    let is_table = !is_call && is_one_of(before, &["from", "join", "into", "update", "using"]);
                    out.push_str(meant);
                    // The table's name is added as an alias, so that other parts of the statement can still use the name.
                    if is_table && !has_alias(behind) {
                        out.push_str(" as ");
                        out.push_str(name);
                    }
                }
                None => out.push_str(&rest[at..at + "queue.".len() + name.len()]),
            }
            rest = &after[name.len()..];
        }
        out.push_str(rest);
        self.replace_key_names(&out)
    }

    /// Replaces the names of key constraints in `on constraint` clauses.
    fn replace_key_names(&self, text: &str) -> String {
        let mut parts = text.split("on constraint ");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let name = part.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default();
            out.push_str("on constraint ");
            match self.keys.get(name) {
                Some(number) => out.extend([name, "_", number, &part[name.len()..]]),
                None => out.push_str(part),
            }
        }
        out
    }

    /// Returns the statement for the store's node. A statement that writes is prefixed with a fence, which rejects the write after the
    /// store has moved to another node.
    pub(crate) fn statement(&self, statement: &str) -> String {
        let text = self.replace_names(statement);
        if !writes(statement) {
            return text;
        }
        let begin = code_start(&text);
        let (comments, code) = text.split_at(begin);
        let fence = format!("fence as (insert into {} select 1 where not {}.held())", self.fence, self.functions);
        if let Some(rest) = code.strip_prefix("with recursive ") {
            format!("{comments}with recursive {fence}, {rest}")
        } else if let Some(rest) = code.strip_prefix("with ") {
            format!("{comments}with {fence}, {rest}")
        } else {
            format!("{comments}with {fence}\n{code}")
        }
    }
}

/// Returns the schema of the functions that exist only on the store's node.
pub(super) fn local_schema(schema: &str) -> String {
    if schema == "queue" { "queue_here".to_owned() } else { format!("\"{schema}_here\"") }
}

/// Keywords that may follow a table name and are not aliases.
const NO_ALIAS: [&str; 24] = [
    "where",
    "set",
    "on",
    "using",
    "join",
    "cross",
    "left",
    "inner",
    "full",
    "right",
    "order",
    "group",
    "limit",
    "for",
    "union",
    "returning",
    "values",
    "select",
    "default",
    "having",
    "offset",
    "with",
    "loop",
    "overriding",
];

fn last_word(text: &str) -> &str {
    text.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|one| one.eq_ignore_ascii_case(word))
}

/// Returns whether the name between `before` and `behind` is the type in a variable declaration. Such a type is not replaced, because
/// functions that take the variable expect the table's row type. The shard's row type does not exist on other nodes.
fn is_declared_type(before: &str, behind: &str) -> bool {
    let mut words = before.rsplit('\n').next().unwrap_or_default().split_whitespace();
    let (variable, more) = (words.next().unwrap_or_default(), words.next());
    let is_word = !variable.is_empty() && variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_clause = is_one_of(variable, &["from", "join", "into", "update", "using", "table", "only", "delete", "truncate"]);
    more.is_none() && is_word && !is_clause && (behind.starts_with(';') || behind.starts_with(" :="))
}

/// Returns whether a table name is followed by an alias.
fn has_alias(behind: &str) -> bool {
    let rest = behind.trim_start();
    let word = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
    rest.len() < behind.len() && !word.is_empty() && !is_one_of(word, &NO_ALIAS)
}

/// Returns whether the text contains statements that write to tables of the store. Writes by called functions are not considered.
pub(super) fn writes(text: &str) -> bool {
    let code: String = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let words: Vec<&str> = code.split_whitespace().collect();
    let is_into = |pair: &[&str], verb: &str, word: &str| pair[0].trim_start_matches('(') == verb && pair[1] == word;
    words.windows(2).any(|pair| {
        is_into(pair, "insert", "into")
            || is_into(pair, "delete", "from")
            || pair[0].trim_start_matches('(') == "update" && pair[1].starts_with("queue.")
    })
}

/// Returns the position after the comments that precede a statement.
fn code_start(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        if !trimmed.starts_with("--") {
            return at;
        }
        at += trimmed.find('\n').unwrap_or(trimmed.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> NodeNames {
        let named = [
            ("ready", LocalName::Shard("102010".to_owned())),
            ("fence", LocalName::Shard("102011".to_owned())),
            ("wake", LocalName::Function),
            ("unfinished_job", LocalName::View),
        ];
        NodeNames::new("queue", named.map(|(name, kind)| (name.to_owned(), kind)))
    }

    #[test]
    fn names_are_replaced_with_shards_and_local_functions() {
        let text = "select queue.wake(e.queue), queue.ready_at(1) from queue.ready r join queue.unfinished_job l on enqueue.queue.ready";
        let want = "select queue_here.wake(e.queue), queue.ready_at(1) from queue.ready_102010 r join queue_here.unfinished_job() l on enqueue.queue.ready";
        assert_eq!(home().replace_names(text), want);
    }

    #[test]
    fn a_variable_has_the_type_of_the_table() {
        let text = "declare\n  one    queue.ready;\n  other  queue.ready := null;\nbegin\n  delete\n  from queue.ready;\n";
        let want = "declare\n  one    queue.ready;\n  other  queue.ready := null;\nbegin\n  delete\n  from queue.ready_102010 as ready;\n";
        assert_eq!(home().replace_names(text), want);
    }

    #[test]
    fn writes_are_fenced() {
        let fence = "fence as (insert into queue.fence_102011 select 1 where not queue_here.held())";
        let written = home().statement("-- with\nwith a as (delete from queue.ready) select 1");
        assert_eq!(written, format!("-- with\nwith {fence}, a as (delete from queue.ready_102010 as ready) select 1"));
        assert_eq!(home().statement("update queue.ready set a = 1"), format!("with {fence}\nupdate queue.ready_102010 as ready set a = 1"));
        assert_eq!(home().statement("select 1 for update of r -- update queue.x"), "select 1 for update of r -- update queue.x");
    }

    #[test]
    fn a_table_without_an_alias_keeps_its_name() {
        let text = "delete from queue.ready where ready.id = 1; insert into queue.ready(id) select from queue.ready as r, queue.ready";
        let want = "delete from queue.ready_102010 as ready where ready.id = 1; insert into queue.ready_102010 as ready(id) \
            select from queue.ready_102010 as r, queue.ready_102010";
        assert_eq!(home().replace_names(text), want);
    }
}
