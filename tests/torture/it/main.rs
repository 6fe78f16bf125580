//! Attacks on statements: concurrent with each other, in random order, and beside a model. `cargo torture` runs them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod interleave;
mod model;
mod protocol_model;
