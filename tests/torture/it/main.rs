//! Stress tests for the SQL statements. The statements are executed concurrently, in random order, and in step with a model. `cargo
//! torture` runs these tests.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod interleave;
mod model;
mod protocol_model;
