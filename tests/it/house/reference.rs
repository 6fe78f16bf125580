//! Checks that the reference pages are complete: the options of `#[job]` in `docs/JOB_OPTIONS.md`, the environment variables in
//! `docs/SETTINGS.md`, and the variants of the public errors in `docs/ERRORS.md`.

use std::collections::BTreeSet;

use super::{assert_none, first_word, library_code, read};

/// Header of the table of options.
const HEADER: &str = "| option | meaning | value | default |";

/// Returns the rows of the first table that begins with [`HEADER`].
fn option_rows<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.skip_while(|line| *line != HEADER).take_while(|line| line.starts_with('|')).map(without_links).collect()
}

/// Replaces each link by its text.
fn without_links(line: &str) -> String {
    let mut text = line.to_owned();
    while let Some(at) = text.find("](") {
        let (Some(from), Some(length)) = (text[..at].rfind('['), text[at..].find(')')) else { break };
        text = format!("{}{}{}", &text[..from], &text[from + 1..at], &text[at + length + 1..]);
    }
    text
}

#[test]
fn the_page_of_job_options_has_the_table_of_the_macro() {
    let (source, page) = (read("queue-macros/src/lib.rs"), read("docs/JOB_OPTIONS.md"));
    let (job, _) = source.split_once("pub fn job(").unwrap();
    let documented = option_rows(job.lines().filter_map(|line| line.strip_prefix("/// ")));
    assert!(documented.len() > 30, "only {} rows", documented.len());
    let shown = option_rows(page.lines());
    let faults: Vec<String> = documented
        .iter()
        .filter(|row| !shown.contains(row))
        .map(|row| format!("not on the page: {row}"))
        .chain(shown.iter().filter(|row| !documented.contains(row)).map(|row| format!("only on the page: {row}")))
        .collect();
    assert_none(&faults, "docs/JOB_OPTIONS.md has the rows of the doc comment of `#[job]`");
    assert_eq!(shown, documented, "in the same order");
}

/// Returns the parts that name environment variables for users. Omits `QUEUE_MUTANTS` and `QUEUE_WRITE_DOCS`, which exist only in test
/// builds.
fn variables<'a>(parts: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let is_name = |part: &&str| {
        part.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') && (part.starts_with("QUEUE_") || *part == "DATABASE_URL")
    };
    parts.filter(is_name).filter(|part| !["QUEUE_", "QUEUE_MUTANTS", "QUEUE_WRITE_DOCS"].contains(part)).map(str::to_owned).collect()
}

#[test]
fn the_page_of_settings_has_every_variable() {
    let read_by_code: BTreeSet<String> = library_code().flat_map(|(_, code)| variables(code.split('"'))).collect();
    assert!(read_by_code.len() > 30, "only {} variables", read_by_code.len());
    let documented = variables(read("docs/SETTINGS.md").split('`'));
    let faults: Vec<String> = read_by_code.symmetric_difference(&documented).cloned().collect();
    assert_none(&faults, "docs/SETTINGS.md has the environment variables of the libraries");
}

/// Public error enums, each with its file.
const ERRORS: [(&str, &str); 3] =
    [("Error", "queue-core/src/error.rs"), ("WaitError", "queue-core/src/results/error.rs"), ("Error", "queue-worker/src/error.rs")];

#[test]
fn the_page_of_errors_has_every_variant() {
    let page = read("docs/ERRORS.md");
    // The names in backticks in the first column of a table.
    let first_cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let names = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let documented: BTreeSet<&str> = names.flat_map(|name| name.split(|letter: char| !letter.is_ascii_alphanumeric())).collect();
    let mut faults = Vec::new();
    for (name, path) in ERRORS {
        let text = read(path);
        let head = format!("pub enum {name} {{");
        let (_, rest) = text.split_once(&head).unwrap_or_else(|| panic!("{path} has no {head}"));
        let body = rest.lines().take_while(|line| *line != "}").filter_map(|line| line.strip_prefix("    "));
        let variants: Vec<String> =
            body.map(first_word).filter(|word| word.starts_with(|letter: char| letter.is_ascii_uppercase())).collect();
        assert!(variants.len() > 5, "{path}: {variants:?}");
        faults.extend(variants.into_iter().filter(|variant| !documented.contains(&**variant)).map(|variant| format!("{name}::{variant}")));
    }
    assert_none(&faults, "docs/ERRORS.md has every error");
}
