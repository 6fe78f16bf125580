//! Terminal output of the demo. This module does not access the database.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::{
    table::{Counts, DeadLetter, Group, Run},
    walk::{FilesFound, printable},
};

/// Maximum number of rows shown in each list of the report.
const SHOWN: usize = 10;

/// Maximum number of paths shown per group of equal files.
const PATHS: usize = 3;

/// Prints a line. Ignores a closed output (`| head`), because the work continues.
pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints the name and the result of one step of the run.
pub(crate) fn step(name: &str, what: &str) {
    line(&format!("{name:<10}{what}"));
}

pub(crate) fn database(embedded: bool, began: Instant) -> String {
    let place = if embedded { "embedded PostgreSQL" } else { "PostgreSQL at DATABASE_URL" };
    format!("{place}, connected and migrated in {}", took(began.elapsed()))
}

pub(crate) fn found(found: &FilesFound, began: Instant) -> String {
    let skipped = [(found.links, "symbolic link"), (found.names, "hard link"), (found.special, "special file")];
    let skipped: Vec<String> = skipped.iter().filter(|(n, _)| *n > 0).map(|(n, what)| count(*n as u64, what)).collect();
    let skipped = if skipped.is_empty() { String::new() } else { format!("; skipped: {}", skipped.join(", ")) };
    format!("{} in {}{skipped}", count(found.files.len() as u64, "file"), took(began.elapsed()))
}

pub(crate) fn enqueued(found: &FilesFound, began: Instant) -> String {
    let files = found.files.len() as u64;
    format!("{} and {} in one transaction, in {}", count(files, "row"), count(files, "job"), took(began.elapsed()))
}

pub(crate) fn hashed(counts: &Counts, bytes: u64, elapsed: Duration) -> String {
    let over = counts.completed + counts.dead;
    let rate = HumanCount((over as f64 / elapsed.as_secs_f64()) as u64);
    let dead = if counts.dead == 0 { String::new() } else { format!("; {} given up", count(counts.dead, "file")) };
    format!("{}, {}, in {}: {rate} jobs/s{dead}", count(counts.completed, "file"), HumanBytes(bytes), took(elapsed))
}

pub(crate) fn interrupted(run: &Run, counts: &Counts) -> String {
    format!("as you asked; {} left in the queue `{}`, none half-done", count(counts.left, "job"), run.queue)
}

pub(crate) fn checked(digests: u64) -> String {
    format!("{} stored, each exactly once", count(digests, "digest"))
}

/// Formats the number of jobs that wait for a retry, as shown next to the progress bar.
pub(crate) fn troubles(counts: &Counts) -> String {
    if counts.scheduled == 0 { String::new() } else { format!("({} to be tried again)", HumanCount(counts.scheduled)) }
}

/// Creates the progress bar, which draws nothing if standard error is not a terminal.
pub(crate) fn bar(files: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<9} {wide_bar} {human_pos}/{human_len} {msg}");
    ProgressBar::new(files).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_prefix("hashing")
}

/// Prints the duplicates, then the files and folders that could not be read.
pub(crate) fn findings(groups: &[Group], dead: &[DeadLetter], unlisted: &[String]) {
    line("");
    if groups.is_empty() {
        line("No duplicates.");
    } else {
        let wasted: u64 = groups.iter().map(|group| group.wasted.unsigned_abs()).sum();
        line(&duplicates(&groups[..groups.len().min(SHOWN)]).trim_fmt());
        more(groups.len(), "group");
        line(&format!("{} in {} of equal files.", HumanBytes(wasted), count(groups.len() as u64, "group")));
    }
    if !dead.is_empty() {
        line(&format!("\nDead letters: {}, kept in the store with the errors", count(dead.len() as u64, "job")));
        for letter in &dead[..dead.len().min(SHOWN)] {
            line(&format!("  {}: {} ({})", letter.path, printable(&letter.error), count(letter.attempts.unsigned_abs().into(), "attempt")));
        }
        more(dead.len(), "dead letter");
    }
    if !unlisted.is_empty() {
        line(&format!("\nNot listed: {}", count(unlisted.len() as u64, "folder")));
        for error in &unlisted[..unlisted.len().min(SHOWN)] {
            line(&format!("  {error}"));
        }
        more(unlisted.len(), "folder");
    }
}

fn duplicates(groups: &[Group]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(["wasted", "copies", "size", "files"]);
    for group in groups {
        let mut paths: Vec<String> = group.paths.iter().take(PATHS).cloned().collect();
        let rest = group.copies.unsigned_abs() as usize - paths.len();
        if rest > 0 {
            paths.push(format!("and {}", count(rest as u64, "other")));
        }
        let size = |bytes: i64| HumanBytes(bytes.unsigned_abs()).to_string();
        table.add_row([size(group.wasted), group.copies.to_string(), size(group.bytes), paths.join("\n")]);
    }
    for column in table.column_iter_mut().take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn more(all: usize, what: &str) {
    if all > SHOWN {
        line(&format!("  and {}", count((all - SHOWN) as u64, &format!("more {what}"))));
    }
}

fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(n), if n == 1 { "" } else { "s" })
}

/// Formats a duration in milliseconds, or in seconds with one decimal.
fn took(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{:.1} s", time.as_secs_f64()) }
}
