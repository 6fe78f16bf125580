//! Parses and applies mutations, without I/O. A mutation is the text of a statement without one of its guards.
//!
//! The mutations of `queue-worker/sql/claim.sql` are in `tests/torture/guards/queue-worker/sql/claim.diff`. The file has the form of a
//! diff:
//!
//! ```diff
//! @@ the total is at most the limit
//! -limit $6
//! +limit $6::int * 2
//!
//! @@ locks leases in one order
//! redundant: waits for no lock, so the order cannot matter
//! -order by l.token
//!  for update skip locked
//! ```
//!
//! The header states the guard's promise, which must be unique in the file. The lines that begin with ` ` or `-` must occur exactly once
//! in the statement. Comments and indentation are ignored. A bare `@@` begins another hunk of the same mutation. `redundant` gives the
//! reason why no test can fail. In the file of a migration, `--- queue.NAME` limits the following mutations to the table, view or
//! function `NAME`.

use anyhow::{Context as _, Result, bail, ensure};

/// Statement or migration without one of its guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Property that the guard promises. Unique in the mutation's file.
    pub promise: String,
    /// Reason why no test can fail without the guard. `None` unless the guard is redundant.
    pub redundant: Option<String>,
    /// Qualified name of the object that contains the guard, such as `queue.enqueue`. `None` outside of migrations.
    pub object: Option<String>,
    hunks: Vec<Hunk>,
}

/// Lines of code without indentation, and the lines that replace them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hunk {
    old: Vec<String>,
    new: Vec<String>,
}

/// Parses the mutations in the text of a diff file.
///
/// # Errors
/// Returns an error if a line cannot be parsed. The error names the line.
pub(super) fn parse(text: &str) -> Result<Vec<Mutation>> {
    let (mut mutations, mut object) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        parse_line(line, &mut mutations, &mut object).with_context(|| format!("line {}: {line}", number + 1))?;
    }
    Ok(mutations)
}

fn parse_line(line: &str, mutations: &mut Vec<Mutation>, object: &mut Option<String>) -> Result<()> {
    if line.is_empty() {
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("--- ") {
        *object = Some(name.to_owned());
        return Ok(());
    }
    if let Some(promise) = line.strip_prefix("@@ ") {
        ensure!(mutations.iter().all(|mutation| mutation.promise != promise), "a mutation above has the same promise");
        let hunks = vec![Hunk::default()];
        mutations.push(Mutation { promise: promise.to_owned(), redundant: None, object: object.clone(), hunks });
        return Ok(());
    }
    let mutation = mutations.last_mut().context("no `@@ PROMISE` above")?;
    if line == "@@" {
        mutation.hunks.push(Hunk::default());
        return Ok(());
    }
    if let Some(reason) = line.strip_prefix("redundant: ") {
        mutation.redundant = Some(reason.to_owned());
        return Ok(());
    }
    let hunk = mutation.hunks.last_mut().context("a mutation has a hunk")?;
    match line.split_at_checked(1) {
        Some((" ", code)) => {
            hunk.old.push(code.trim().to_owned());
            hunk.new.push(code.to_owned());
        }
        Some(("-", code)) => hunk.old.push(code.trim().to_owned()),
        Some(("+", code)) => hunk.new.push(code.to_owned()),
        _ => bail!("a line of a hunk begins with ` `, `-` or `+`"),
    }
    Ok(())
}

impl Mutation {
    /// Returns `text` without the guard that the mutation removes.
    ///
    /// # Errors
    /// Returns an error if a hunk does not match exactly once, or changes nothing.
    pub fn apply(&self, text: &str) -> Result<String> {
        let mutated = self.hunks.iter().try_fold(text.to_owned(), |text, hunk| hunk.apply(&text, self.object.as_deref()));
        mutated.with_context(|| self.promise.clone())
    }
}

impl Hunk {
    fn apply(&self, text: &str, object: Option<&str>) -> Result<String> {
        ensure!(self.old.iter().ne(self.new.iter().map(|line| line.trim())), "a hunk changes nothing");
        let lines: Vec<&str> = text.lines().collect();
        let code = code_of(&lines, object);
        let found: Vec<_> = code.windows(self.old.len().max(1)).filter(|lines| lines.iter().map(|(_, line)| line).eq(&self.old)).collect();
        let &[&[(first, _), ..]] = &found[..] else { bail!("occurs {} times instead of once:\n{}", found.len(), self.old.join("\n")) };
        let last = found[0].last().map_or(first, |(last, _)| *last);
        let new: Vec<&str> = self.new.iter().map(String::as_str).collect();
        Ok([&lines[..first], &new, &lines[last + 1..], &[""]].concat().join("\n"))
    }
}

/// Returns the numbered lines of code, without comments and indentation. If `object` is given, returns only the lines from its creation
/// to the creation of the next object.
fn code_of<'a>(lines: &[&'a str], object: Option<&str>) -> Vec<(usize, &'a str)> {
    let mut current = None;
    let lines = lines.iter().enumerate().filter(|(_, line)| {
        current = created(line).or(current.take());
        object.is_none() || current.as_deref() == object
    });
    lines.map(|(number, line)| (number, code(line).trim_start())).filter(|(_, line)| !line.is_empty()).collect()
}

/// Returns the qualified name of the object that the line creates. For an index, returns the name of its table.
pub(super) fn created(line: &str) -> Option<String> {
    let definition = line.strip_prefix("create ")?;
    let name = definition.split(' ').find(|word| word.starts_with("queue."))?;
    Some(name.split(['(', ';']).next().unwrap_or(name).to_owned())
}

/// Returns the line without its comment.
pub(super) fn code(line: &str) -> &str {
    let mut quoted = false;
    for (at, letter) in line.char_indices() {
        quoted ^= letter == '\'';
        if !quoted && line[at..].starts_with("--") {
            return line[..at].trim_end();
        }
    }
    line.trim_end()
}
