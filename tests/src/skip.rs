//! What is not tried on this machine says so, so that nobody takes it for tried.

use std::{fs::File, io::Write as _};

/// Says that a test, or a part of it, is not run here, and why: as a line of the test's output, and as one of the file that
/// `QUEUE_TEST_SKIPS` names, where the CI counts them.
///
/// # Panics
/// When that file cannot be written.
pub fn skipped(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}");
    println!("{line}");
    if let Some(file) = std::env::var_os("QUEUE_TEST_SKIPS") {
        // One write a line: tests run at the same time.
        let written =
            File::options().create(true).append(true).open(&file).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
