//! Stress tests for the SQL statements and the worker protocol. Statements run concurrently, or in random order while a model checks the
//! tables. A model of the protocol is explored without a database. `cargo torture` runs these tests.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod interleave;
mod model;
mod protocol_model;
