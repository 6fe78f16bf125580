//! Writes JSON documents, tables and lines to stdout. Escapes control characters.

use std::io::{ErrorKind, Write as _, stdout};

use chrono::{DateTime, SubsecRound as _, Utc};
use comfy_table::{Table, presets};
use serde::Serialize;

use super::problem::Problem;
use crate::escape;

/// Prints one JSON document.
pub(super) fn json(document: &impl Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(document).map_err(Problem::failed)?;
    write(&escape::json(&text))
}

/// Prints each document on a separate line. Returns false once the reader has closed stdout.
pub(super) fn json_lines(documents: &[impl Serialize]) -> Result<bool, Problem> {
    let mut text = String::new();
    for document in documents {
        text += &escape::json(&serde_json::to_string(document).map_err(Problem::failed)?);
        text.push('\n');
    }
    write_unless_closed(&text)
}

/// Prints each text on one line. Returns false once the reader has closed stdout.
pub(super) fn each_line(texts: impl Iterator<Item = String>) -> Result<bool, Problem> {
    write_unless_closed(&texts.map(|text| escape::line(&text) + "\n").collect::<String>())
}

fn write_unless_closed(text: &str) -> Result<bool, Problem> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(write_error(&error)),
    }
}

/// Prints text and keeps its line breaks.
pub(super) fn lines(text: &str) -> Result<(), Problem> {
    write(&escape::lines(text))
}

/// Formats rows below a header, with each cell on one line.
pub(super) fn table<'a>(
    header: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let header: Vec<String> = header.into_iter().map(str::to_uppercase).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().map(|cell| escape::line(&cell)).collect()).collect();
    if rows.iter().chain([&header]).flatten().all(|cell| cell.is_ascii()) {
        align_ascii(&header, &rows)
    } else {
        align_by_width(&header, &rows)
    }
}

/// Aligns ASCII text, in which every character is one column wide. Handles ten thousand rows without a noticeable delay.
fn align_ascii(header: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
    let columns = all().map(<[String]>::len).max().unwrap_or_default();
    let width = |column| all().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let padded = |(cell, width): (&String, &usize)| cell.clone() + &" ".repeat(width + 2 - cell.len());
    let line = |row: &[String]| row.iter().zip(&widths).map(padded).collect::<String>().trim_end().to_owned();
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// Aligns text by the display width of its characters.
fn align_by_width(header: &[String], rows: &[Vec<String>]) -> String {
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

/// Formats a time in UTC with a precision of one second.
pub(super) fn time(time: DateTime<Utc>) -> String {
    time.round_subsecs(0).format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Prints a trusted text unchanged.
pub(super) fn text(text: &[u8]) -> Result<(), Problem> {
    write_parts(&[text])
}

fn write(text: &str) -> Result<(), Problem> {
    write_parts(&[text.as_bytes(), b"\n"])
}

/// Writes all parts to stdout. A closed pipe, as with `| head`, is not an error.
fn write_parts(parts: &[&[u8]]) -> Result<(), Problem> {
    let mut out = stdout().lock();
    match parts.iter().try_for_each(|part| out.write_all(part)).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(write_error(&error)),
        _ => Ok(()),
    }
}

fn write_error(error: &std::io::Error) -> Problem {
    Problem::failed(format!("cannot write to stdout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alignments_agree_on_ascii() {
        let header = ["A", "LONGER", "C"].map(str::to_owned);
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        for rows in [vec![], vec![row(["", "", ""])], vec![row(["a long cell", "1", ""]), row(["x", "", "an end"]), row(["", "22", " "])]] {
            assert_eq!(align_ascii(&header, &rows), align_by_width(&header, &rows), "{rows:?}");
        }
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [["mail", "1"], ["m\u{fc}ll", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["queue", "jobs"], rows), "QUEUE  JOBS\nmail   1\nm\u{fc}ll   22");
    }
}
