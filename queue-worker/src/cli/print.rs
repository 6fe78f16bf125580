//! Everything that goes to stdout: one JSON document, or tables and lines for people. Whatever is printed is made inert here.

use std::io::{ErrorKind, Write as _, stdout};

use chrono::{DateTime, SubsecRound as _, Utc};
use comfy_table::{Table, presets};
use serde::Serialize;

use super::problem::Problem;
use crate::inert;

/// Prints one JSON document.
pub(super) fn json(document: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(document).map_err(Problem::failed)?;
    write(&inert::json(&text))
}

/// Prints each on a line of its own; false once nobody reads any more.
pub(super) fn json_lines(documents: &[impl Serialize]) -> Result<bool, Problem> {
    let mut text = String::new();
    for document in documents {
        text += &inert::json(&serde_json::to_string(document).map_err(Problem::failed)?);
        text.push('\n');
    }
    unless_closed(&text)
}

/// Prints each text on one line; false once nobody reads any more.
pub(super) fn each_line(texts: impl Iterator<Item = String>) -> Result<bool, Problem> {
    unless_closed(&texts.map(|text| inert::line(&text) + "\n").collect::<String>())
}

fn unless_closed(text: &str) -> Result<bool, Problem> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(unwritten(&error)),
    }
}

/// Prints text whose lines stay lines.
pub(super) fn lines(text: &str) -> Result<(), Problem> {
    write(&inert::lines(text))
}

/// Rows under a header, each cell on one line.
pub(super) fn table<'a>(
    header: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let header: Vec<String> = header.into_iter().map(str::to_uppercase).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().map(|cell| inert::line(&cell)).collect()).collect();
    if rows.iter().chain([&header]).flatten().all(|cell| cell.is_ascii()) { aligned(&header, &rows) } else { measured(&header, &rows) }
}

/// A character is a column wide: ten thousand rows are no wait.
fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
    let columns = all().map(<[String]>::len).max().unwrap_or_default();
    let width = |column| all().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let padded = |(cell, width): (&String, &usize)| cell.clone() + &" ".repeat(width + 2 - cell.len());
    let line = |row: &[String]| row.iter().zip(&widths).map(padded).collect::<String>().trim_end().to_owned();
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// As wide as characters are.
fn measured(header: &[String], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// A time as people read it, in UTC and to the second.
pub(super) fn time(time: DateTime<Utc>) -> String {
    time.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Prints a text of our own as it is.
pub(super) fn text(text: &[u8]) -> Result<(), Problem> {
    all_of(&[text])
}

fn write(text: &str) -> Result<(), Problem> {
    all_of(&[text.as_bytes(), b"\n"])
}

/// A reader that has seen enough (`| head`) is no failure.
fn all_of(parts: &[&[u8]]) -> Result<(), Problem> {
    let mut out = stdout().lock();
    match parts.iter().try_for_each(|part| out.write_all(part)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

fn unwritten(error: &std::io::Error) -> Problem {
    Problem::failed(format!("cannot write to stdout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_aligned_looks_as_what_is_measured() {
        let header = ["A", "LONGER", "C"].map(str::to_owned);
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        for rows in [vec![], vec![row(["", "", ""])], vec![row(["a long cell", "1", ""]), row(["x", "", "an end"]), row(["", "22", " "])]] {
            assert_eq!(aligned(&header, &rows), measured(&header, &rows), "{rows:?}");
        }
    }

    #[test]
    fn a_table_is_as_wide_as_what_stands_in_it() {
        let rows = [["mail", "1"], ["m\u{fc}ll", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["queue", "jobs"], rows), "QUEUE  JOBS\nmail   1\nm\u{fc}ll   22");
    }
}
