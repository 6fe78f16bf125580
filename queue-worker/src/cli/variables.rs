//! Finds environment variables with misspelled names, which would otherwise be silently ignored.

use clap::Command;

/// Variables with the `QUEUE_` prefix that are not command-line settings.
const OTHER_VARIABLES: [&str; 4] = ["QUEUE_PG_DATA", "QUEUE_PG_BIN", "QUEUE_PAYLOADS", "QUEUE_MUTANTS"];

/// Returns a warning for each unknown variable with the `QUEUE_` prefix. The warning suggests the most similar known variable, unless the
/// names differ in more than three edits.
pub(super) fn unknown_variables(command: &Command, set: impl Iterator<Item = String>) -> Vec<String> {
    let mut known: Vec<String> = OTHER_VARIABLES.map(str::to_owned).to_vec();
    collect(command, &mut known);
    let mut notes = Vec::new();
    for name in set.filter(|name| name.starts_with("QUEUE_") && !known.contains(name)) {
        let near = known.iter().map(|known| (strsim::damerau_levenshtein(&name, known), known)).min();
        let meant = near
            .filter(|(edits, _)| *edits <= 3)
            .map_or_else(|| "; `--help` lists the settings".to_owned(), |(_, known)| format!("; did you mean {known}?"));
        notes.push(format!("the variable {name} is not a setting{meant}"));
    }
    notes.sort();
    notes
}

fn collect(command: &Command, known: &mut Vec<String>) {
    known.extend(command.get_arguments().filter_map(|argument| Some(argument.get_env()?.to_string_lossy().into_owned())));
    for command in command.get_subcommands() {
        collect(command, known);
    }
}
