//! Reports tests that are skipped on this machine, so that they are not mistaken for passed ones.

use std::{fs::File, io::Write as _};

/// Reports that a test, or a part of it, is skipped and why: on the test's output, and as a line of the file that `QUEUE_TEST_SKIPS` names,
/// whose lines the CI counts.
///
/// # Panics
/// When that file cannot be written.
pub fn skipped(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}");
    println!("{line}");
    if let Some(file) = std::env::var_os("QUEUE_TEST_SKIPS") {
        // One write per line, because tests run concurrently.
        let written =
            File::options().create(true).append(true).open(&file).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
