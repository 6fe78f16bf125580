//! Attacks on statements: in the middle of each other, in any order, beside a model. `cargo torture` runs them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod interleave;
mod model;
mod protocol_model;
