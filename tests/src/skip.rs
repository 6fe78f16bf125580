//! Reports tests that are skipped on this machine, so that they are not mistaken for passed tests.

use std::{fs::File, io::Write as _};

/// Reports that a test, or a part of a test, is skipped and why. The report goes to the test's output and to a line of the file named by
/// `QUEUE_TEST_SKIPS`, whose lines the CI counts.
///
/// # Panics
/// If that file cannot be written.
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
