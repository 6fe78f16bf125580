//! Checks the SQL statements. Each statement has its own file, which begins with a header and is loaded by the code. Every name of the
//! store is qualified with its schema.

use std::collections::BTreeSet;

use super::{LIBRARIES, assert_none, files, first_word, library_code};

/// Returns the names of the store's tables, views and functions. Statements must qualify these names with the schema.
fn names_of_ours() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in files("queue-core/migrations", "sql") {
        for kind in ["create table queue.", "create view queue.", "create function queue."] {
            names.extend(text.match_indices(kind).map(|(at, _)| first_word(&text[at + kind.len()..])).filter(|name| !name.is_empty()));
        }
    }
    assert!(names.contains("ready") && names.contains("jobs") && names.contains("wake"), "{names:?}");
    names
}

#[test]
fn every_sql_file_is_loaded_and_explained_and_names_its_tables_in_full() {
    let code: String = library_code().map(|(_, text)| text).collect();
    let ours = names_of_ours();
    let mut faults = Vec::new();
    let statements: Vec<(String, String)> =
        ["queue-core/sql", "queue-core/testing", "queue-core/citus", "queue-worker/sql", "queue-core/migrations", "queue-core/roles"]
            .into_iter()
            .flat_map(|folder| files(folder, "sql"))
            .collect();
    assert!(statements.len() > 25);
    for (path, text) in statements {
        let loaded = format!("/{}\")", path.split_once('/').unwrap().1);
        if !code.contains(&loaded) {
            faults.push(format!("{path} is loaded nowhere"));
        }
        if !text.starts_with("-- ") || text.starts_with("-- \n") {
            faults.push(format!("{path} does not begin with a header"));
        }
        if text.lines().any(|line| line.chars().count() > 150) {
            faults.push(format!("{path} has lines of more than 150 characters"));
        }
        // The meaning of a backslash in a plain string depends on the session's `standard_conforming_strings`.
        if text.lines().any(|line| line.split("--").next().is_some_and(|code| code.contains('\\') && !code.contains("E'"))) {
            faults.push(format!("{path} has a backslash in a string that is not E'..'"));
        }
        // `between` uses operators from the session's `search_path`, because a statement cannot qualify them.
        let is_statement = !path.contains("/migrations/");
        let between = |line: &str| line.split("--").next().is_some_and(|code| code.contains(" between ") && !code.contains("rows between"));
        if is_statement && text.lines().any(between) {
            faults.push(format!("{path} has `between`: write `>=` and `<=`"));
        }
        faults.extend(unqualified(&text, &ours).into_iter().map(|word| format!("{path}: `{word}` without its schema")));
    }
    assert_none(&faults, "one statement, one file, every name qualified");
}

#[test]
fn every_function_of_a_store_is_called_or_documented() {
    let sql: Vec<(String, String)> = ["queue-core", "queue-worker"].into_iter().flat_map(|member| files(member, "sql")).collect();
    let texts: String = library_code().chain(sql.iter().cloned()).chain(files("docs", "md")).map(|(_, text)| text).collect();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (path, text) in &sql {
        for (at, create) in text.match_indices("create function queue.") {
            let name = first_word(&text[at + create.len()..]);
            seen += 1;
            if texts.matches(&format!("queue.{name}(")).count() < 2 {
                faults.push(format!("{path}: queue.{name} is called nowhere"));
            }
        }
    }
    assert!(seen > 50, "only {seen} functions were found");
    assert_none(&faults, "the store has no unused objects");
}

/// Returns the store's names that lack the qualifier `queue.`, either after a table keyword or in a function call.
fn unqualified(text: &str, ours: &BTreeSet<String>) -> Vec<String> {
    let text: String = text.lines().map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut found = Vec::new();
    let mut last = "";
    for word in text.split_whitespace() {
        let name = first_word(word.trim_start_matches('('));
        let before = std::mem::replace(&mut last, word);
        let as_table = matches!(before, "from" | "join" | "into" | "update" | "using" | "table") && !word.contains(&format!("{name}."));
        let as_call = word.trim_start_matches('(').strip_prefix(&name).is_some_and(|rest| rest.starts_with('('));
        // The words after `using` in a dynamic statement are variables, not tables.
        let as_argument = before == "using" && word.ends_with(';');
        if ours.contains(&name) && !as_argument && (as_table || as_call) {
            found.push(word.to_owned());
        }
    }
    found
}

#[test]
fn the_scanner_of_statements_finds_unqualified_names() {
    let ours = names_of_ours();
    let text =
        "with taken as (delete from ready where x) insert into lease select next_id() from queue.job j join done on true -- from jobs";
    assert_eq!(unqualified(text, &ours), ["ready", "lease", "next_id()", "done"]);
    assert!(unqualified("select queue.next_id() from queue.ready r using held h", &ours).is_empty());
}

/// A statement that is planned on every call pays for the planning each time. A measurement must show that the plan is worth this cost.
#[test]
fn no_statement_is_planned_at_each_call_without_a_measured_reason() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (path, text) in LIBRARIES.into_iter().flat_map(|member| files(&format!("{member}/src"), "rs")) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, _) in lines.iter().enumerate().filter(|(_, line)| line.contains(".persistent(false)")) {
            seen += 1;
            let above = lines[..number].iter().rev().take(16).skip_while(|line| !line.trim_start().starts_with("//"));
            let reason: Vec<&str> = above.map(|line| line.trim_start()).take_while(|line| line.starts_with("//")).collect();
            let reason = reason.into_iter().rev().collect::<Vec<_>>().join(" ");
            let has_figure = reason.split(|letter: char| !letter.is_alphanumeric()).any(|word| word.parse::<u32>().is_ok());
            if !reason.contains("Planned for each call") || !has_figure || !reason.contains(" ms") {
                faults.push(format!("{path}:{}", number + 1));
            }
        }
    }
    assert!(seen > 0, "none is planned for each call: this test is not needed");
    assert_none(&faults, "say `Planned for each call`, why, and how many ms it is with and without");
}
