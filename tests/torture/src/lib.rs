//! Stress tests of the statements and the protocol. The tests take minutes, so they are separate from the test suite. `cargo chaos` injects
//! faults, `cargo guards` removes each guard of each statement, and `cargo torture` runs statements concurrently and checks models of the
//! protocol. `cargo conformance` runs the crate `queue-conformance` on servers that it starts.

pub mod chaos;
pub mod conformance;
pub mod guards;
pub mod seeded;

use std::path::{Path, PathBuf};

/// Returns the root directory of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns cargo's target directory, to which `cargo chaos` and `cargo guards` also write their files.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
