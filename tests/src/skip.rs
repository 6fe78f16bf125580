//! Reports tests that are skipped on this machine. A skipped test must not be mistaken for a passed test.

use std::{fs::File, io::Write as _};

/// Reports a skipped test, or a skipped part of a test, with the reason. Writes the report to the test's output, and as a line to the
/// file named by `QUEUE_TEST_SKIPS`. CI counts the lines of this file.
///
/// # Panics
/// Panics if the file cannot be written.
pub fn skipped(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}");
    println!("{line}");
    if let Some(file) = std::env::var_os("QUEUE_TEST_SKIPS") {
        // Each line is written with a single write, because tests run concurrently.
        let written =
            File::options().create(true).append(true).open(&file).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
