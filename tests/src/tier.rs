//! Test tiers, as explained in `tests/README.md`.

use std::{env, path::Path};

/// Checks that a test that starts a server, a browser or a compiler is not part of `cargo test`.
///
/// `what` is a verb phrase that completes the panic message after "this test". Programs other than the suite are not checked.
///
/// # Panics
/// Panics if the test runs although ignored tests were not requested, which means that the test is not marked `#[ignore]`.
pub fn beyond_tier_one(what: &str) {
    let is_suite = env::current_exe().is_ok_and(|exe| is_suite(&exe));
    let includes_ignored = env::args().any(|argument| argument == "--ignored" || argument == "--include-ignored");
    assert!(!is_suite || includes_ignored, "this test {what}: mark it `#[ignore = \"deep\"]`, see tests/README.md");
}

/// Returns whether `exe` is the binary of `tests/it`, whose name ends in a hash.
fn is_suite(exe: &Path) -> bool {
    exe.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("it-"))
}
