//! Variables of the environment that look like settings and are none: a misspelt one would change nothing, and nobody would know.

use clap::Command;

/// Read by others than the command line.
const BESIDE: [&str; 3] = ["QUEUE_PG_DATA", "QUEUE_PG_BIN", "QUEUE_MUTANTS"];

/// What begins as our variables do and is none of them, each with what may be meant.
pub(super) fn unknown(command: &Command, set: impl Iterator<Item = String>) -> Vec<String> {
    let mut known: Vec<String> = BESIDE.map(str::to_owned).to_vec();
    collect(command, &mut known);
    let mut notes = Vec::new();
    for name in set.filter(|name| name.starts_with("QUEUE_") && !known.contains(name)) {
        let near = known.iter().map(|known| (strsim::damerau_levenshtein(&name, known), known)).min();
        let meant = near
            .filter(|(edits, _)| *edits <= 3)
            .map_or_else(|| "; `--help` lists those that there are".to_owned(), |(_, known)| format!("; did you mean {known}?"));
        notes.push(format!("the variable {name} is no setting{meant}"));
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
