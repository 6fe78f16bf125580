//! Attacks on statements. The statements are executed concurrently, in random order, and beside a model. `cargo torture` runs the attacks.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod interleave;
mod model;
mod protocol_model;
