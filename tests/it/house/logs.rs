//! Checks that docs/LOGS.md describes every line that the libraries log at `warn` or `error`, with its cause and a remedy. Also checks
//! that every documented line is logged.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, library_code, read};

/// Calls that log, with their level.
const CALLS: [(&str, &str); 3] = [("warn!(", "warn"), ("error!(", "error"), ("warn_throttled(", "warn")];

/// Returns the text up to the parenthesis that closes the call.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_string, mut letters) = (1, false, text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if in_string => drop(letters.next()),
            '"' => in_string = !in_string,
            '(' if !in_string => depth += 1,
            ')' if !in_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Returns the string literals in a text, with continued lines joined and each placeholder replaced by `..`.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A quote in a character literal does not start a string.
    let text = text.replace("'\"'", "");
    let mut rest = text.as_str();
    while let Some(start) = rest.find('"') {
        let body = &rest[start + 1..];
        let mut letters = body.char_indices();
        let mut end = body.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => drop(letters.next()),
                '"' => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        let joined: Vec<&str> =
            body[..end].split("\\\n").enumerate().map(|(n, part)| if n > 0 { part.trim_start() } else { part }).collect();
        found.push(without_placeholders(&joined.concat()));
        rest = body.get(end + 1..).unwrap_or_default();
    }
    found
}

fn without_placeholders(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + ".." + part.split_once('}').map_or(part, |(_, rest)| rest))
}

/// Returns the string constants of a file, by name.
fn constants(code: &str) -> BTreeMap<&str, String> {
    let starts = code.match_indices("const ").map(|(at, _)| &code[at + "const ".len()..]);
    let texts = starts.filter_map(|rest| rest.split_once(": &str =").filter(|(name, _)| !name.contains(' ')));
    texts.filter_map(|(name, rest)| literals(rest.split(";\n").next()?).into_iter().next().map(|text| (name, text))).collect()
}

/// Returns the message of a logging call, or `None` if the message has no literal text.
fn message(call: &str, constants: &BTreeMap<&str, String>) -> Option<String> {
    let named = constants.iter().find(|(name, _)| call.contains(&format!("{{{name}}}")) || call.trim_end().ends_with(&format!(", {name}")));
    let literal =
        || literals(call).pop().filter(|text| !text.trim_matches('.').is_empty() && text.contains(|letter: char| letter.is_alphabetic()));
    named.map(|(_, text)| text.clone()).or_else(literal)
}

#[test]
fn every_warning_and_error_is_documented() {
    let files: Vec<(String, String)> = library_code().collect();
    let shared: Vec<BTreeMap<&str, String>> = files.iter().map(|(_, code)| constants(code)).collect();
    let mut logged = BTreeSet::new();
    for ((_, code), own) in files.iter().zip(&shared) {
        let mut known = shared
            .iter()
            .filter_map(|one| one.get_key_value("NO_SESSION"))
            .map(|(name, text)| (*name, text.clone()))
            .collect::<BTreeMap<_, _>>();
        known.extend(own.clone());
        for (call, level) in CALLS {
            for (at, _) in code.match_indices(call) {
                let before = &code[..at];
                if before.ends_with('_') || before.ends_with("fn ") {
                    continue;
                }
                logged.extend(message(arguments(&code[at + call.len()..]), &known).map(|text| (level, text)));
            }
        }
    }
    assert!(logged.len() > 100, "only {} calls were read", logged.len());
    let page = read("docs/LOGS.md");
    let all: String = files.iter().flat_map(|(_, code)| literals(code)).collect::<Vec<_>>().join("\n");
    let (mut faults, mut documented) = (Vec::new(), BTreeSet::new());
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (level, text) = if ["warn", "error"].contains(&cells[0]) { (cells[0], cells[1]) } else { ("warn", cells[0]) };
        if ["level", "line"].contains(&cells[0]) {
            continue;
        }
        documented.insert((level, text.to_owned()));
        if !all.contains(text) {
            faults.push(format!("docs/LOGS.md: not logged: {level}: {text}"));
        }
    }
    faults.extend(
        logged
            .iter()
            .filter(|(level, text)| !documented.contains(&(*level, text.clone())))
            .map(|(level, text)| format!("not in docs/LOGS.md: {level}: {text}")),
    );
    assert_none(&faults, "describe the line in docs/LOGS.md, with its cause and what to do");
}
