//! Guards as they stand in the SQL that they guard: comments from which a statement without one of them is derived. Pure.
//!
//! ```sql
//! where l.token = any ($1)                       -- guard: only the leases named
//! join fenced f on f.token = l.token and f.id = l.id  -- guard: fenced by the token [f.token = l.token and ]; fenced by the id [ and f.id = l.id]
//! limit $2                                       -- guard: no more than asked [$2 => $2 * 2]
//! if exists (select from queue.idle i) then      -- guard: wakes only who sleeps [exists .. i) => true]
//! order by l.token                               -- redundant: in one order (it waits for no lock)
//! -- guard: nobody waits for ever (2 lines)
//! ```
//!
//! Without a bracket the whole line goes: the `where` before an `and` passes to it, the last item of a list takes the comma before it along,
//! and what closes a parenthesis of an earlier line stays. In brackets is what goes of the line (`a .. b`: from `a` to the next `b`), and
//! after `=>` what stands there instead. A marker on a line of its own is of the next line of code. `also: NAME` is a further place of a
//! guard of that name; `redundant` says in parentheses why no test can fail.

use anyhow::{Context as _, Result, bail, ensure};

/// One guard of a statement or of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// What it is called; unique in its file.
    pub name: String,
    /// Why no test can fail without it, if that is so.
    pub redundant: Option<String>,
    /// What of a migration it is in: `queue.enqueue`.
    pub object: Option<String>,
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The first line that it is about, counted from 0.
    line: usize,
    cut: Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// So many lines of code go.
    Lines(usize),
    /// This is gone from the line, and that stands there instead.
    Text(String, String),
}

/// How a marker begins.
const KINDS: [&str; 3] = ["guard: ", "also: ", "redundant: "];

/// All guards of a text, in the order of their places.
///
/// # Errors
/// Says which line has a marker that cannot be read, or names a guard a second time.
pub(super) fn parse(text: &str) -> Result<Vec<Guard>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut guards: Vec<Guard> = Vec::new();
    let mut object = None;
    for (number, line) in lines.iter().enumerate() {
        object = created(line).or(object);
        let Some((code, marker)) = split(line) else { continue };
        let about = if code.trim().is_empty() { following(&lines, number).next() } else { Some(number) };
        let about = about.with_context(|| format!("line {}: there is nothing to guard below it", number + 1))?;
        for item in items(marker).with_context(|| format!("line {}: {marker}", number + 1))? {
            let place = Place { line: about, cut: item.cut };
            let known = guards.iter_mut().find(|guard| guard.name == item.name);
            match (item.kind, known) {
                ("also: ", Some(known)) => known.places.push(place),
                ("also: ", None) => bail!("line {}: `{}` is no guard above", number + 1, item.name),
                (_, Some(known)) => bail!("line {}: there is a guard `{}` above", number + 1, known.name),
                (_, None) => {
                    guards.push(Guard { name: item.name, redundant: item.why, object: object.clone(), places: vec![place] });
                }
            }
        }
    }
    Ok(guards)
}

impl Guard {
    /// The text without this guard.
    ///
    /// # Errors
    /// When what is to go does not stand in its line exactly once.
    pub fn removed_from(&self, text: &str) -> Result<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for place in &self.places {
            match &place.cut {
                Cut::Text(from, to) => cut(&mut lines[place.line], from, to).with_context(|| self.name.clone())?,
                Cut::Lines(count) => remove(&mut lines, place.line, *count).with_context(|| self.name.clone())?,
            }
        }
        lines.push(String::new());
        Ok(lines.join("\n"))
    }
}

/// What a line without its comment makes, if it begins to make something.
pub(super) fn created(line: &str) -> Option<String> {
    let made = line.strip_prefix("create ")?;
    let made = made.strip_prefix("or replace ").unwrap_or(made);
    let name = made.split(' ').find(|word| word.starts_with("queue."))?;
    Some(name.split(['(', ';']).next().unwrap_or(name).to_owned())
}

/// The code of a line, and the marker behind it.
fn split(line: &str) -> Option<(&str, &str)> {
    let (at, _) = line.match_indices("-- ").find(|(at, _)| KINDS.iter().any(|kind| line[at + 3..].starts_with(kind)))?;
    Some((&line[..at], &line[at + 3..]))
}

/// The code of a line, without a comment of any kind.
pub(super) fn code(line: &str) -> &str {
    let line = split(line).map_or(line, |(code, _)| code);
    let mut quoted = false;
    for (at, letter) in line.char_indices() {
        quoted ^= letter == '\'';
        if !quoted && line[at..].starts_with("--") {
            return line[..at].trim_end();
        }
    }
    line.trim_end()
}

/// The lines of code after this one.
fn following(lines: &[impl AsRef<str>], number: usize) -> impl Iterator<Item = usize> {
    (number + 1..lines.len()).filter(|at| !code(lines[*at].as_ref()).trim().is_empty())
}

fn cut(line: &mut String, from: &str, to: &str) -> Result<()> {
    let end = code(line).len();
    let (begins, ends) = from.split_once(" .. ").unwrap_or((from, ""));
    let count = line[..end].matches(begins).count();
    ensure!(count == 1, "`{begins}` stands {count} times in `{}`, not once", line.trim());
    let at = line.find(begins).unwrap_or_default();
    let behind = at + begins.len();
    let more = line[behind..end].find(ends).with_context(|| format!("`{ends}` does not follow in `{}`", line.trim()))?;
    let gone = at..behind + more + ends.len();
    ensure!(line[gone.clone()] != *to, "`{from}` stays");
    line.replace_range(gone, to);
    Ok(())
}

fn remove(lines: &mut [String], first: usize, count: usize) -> Result<()> {
    let gone: Vec<usize> = std::iter::once(first).chain(following(lines, first)).take(count).collect();
    ensure!(gone.len() == count, "there are no {count} lines");
    let last = gone[count - 1];
    let next = following(lines, last).next();
    let before = (0..first).rev().find(|at| !code(&lines[*at]).trim().is_empty());
    if let (Some(next), true) = (next, code(&lines[first]).trim_start().starts_with("where ")) {
        let indent = lines[next].len() - lines[next].trim_start().len();
        if lines[next][indent..].starts_with("and ") {
            lines[next].replace_range(indent..indent + "and".len(), "where");
        }
    }
    if let (Some(before), false) = (before, code(&lines[last]).ends_with(',')) {
        let end = code(&lines[before]).len();
        if lines[before][..end].ends_with(',') {
            lines[before].replace_range(end - 1..end, "");
        }
    }
    for line in gone {
        let closes = closing(code(&lines[line])).to_owned();
        lines[line] = closes;
    }
    Ok(())
}

/// What is left of a line that goes: from where it closes what an earlier one has opened.
fn closing(line: &str) -> &str {
    let mut depth = 0;
    let closes = line.char_indices().find(|(_, letter)| {
        depth += i32::from(*letter == '(') - i32::from(*letter == ')');
        depth < 0
    });
    closes.map_or("", |(at, _)| &line[at..])
}

/// One of the guards that a marker names.
struct Item {
    kind: &'static str,
    name: String,
    cut: Cut,
    why: Option<String>,
}

/// What a marker says: `guard: NAME [FROM => TO]; NAME (N lines); redundant: NAME (WHY)`.
fn items(marker: &str) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut rest = marker.trim_end();
    loop {
        let kind = KINDS.into_iter().find(|kind| rest.starts_with(kind));
        rest = &rest[kind.map_or(0, str::len)..];
        let end = [" [", " (", "; "].into_iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        ensure!(!name.trim_end_matches(':').is_empty() && !KINDS.contains(&&*format!("{name} ")), "a guard has a name");
        rest = &rest[end..];
        let mut item = Item { kind: kind.unwrap_or(KINDS[0]), name, cut: Cut::Lines(1), why: None };
        if let Some(text) = enclosed(&mut rest, '[', ']')? {
            let (from, to) = text.split_once(" => ").unwrap_or((text, ""));
            item.cut = Cut::Text(from.to_owned(), to.to_owned());
        }
        while let Some(text) = enclosed(&mut rest, '(', ')')? {
            match text.strip_suffix(" lines").map(str::parse) {
                Some(Ok(count)) => item.cut = Cut::Lines(count),
                _ => item.why = Some(text.to_owned()),
            }
        }
        ensure!(item.why.is_some() == (item.kind == "redundant: "), "what is redundant says why, and nothing else does");
        items.push(item);
        match rest.strip_prefix("; ") {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(items),
            None => bail!("`{rest}` is left over"),
        }
    }
}

/// Takes what stands next, between these and after a space, if it does.
fn enclosed<'a>(rest: &mut &'a str, open: char, close: char) -> Result<Option<&'a str>> {
    let Some(text) = rest.strip_prefix(' ').and_then(|text| text.strip_prefix(open)) else { return Ok(None) };
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        depth += i32::from(letter == open) - i32::from(letter == close);
        if depth == 0 {
            *rest = &text[at + close.len_utf8()..];
            return Ok(Some(&text[..at]));
        }
    }
    bail!("`{open}` is not closed")
}
