//! What attacks the statements and the protocol, apart from the suite because it takes minutes: faults at work (`cargo chaos`), each guard of
//! each statement removed (`cargo guards`), two and three statements at once and models of the protocol (`cargo torture`). And what holds on a server of anybody's
//! (`cargo conformance`).

pub mod chaos;
pub mod conformance;
pub mod guards;
pub mod seeded;

use std::path::{Path, PathBuf};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo builds, and where what these programs leave is found.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
