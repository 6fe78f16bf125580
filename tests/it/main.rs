//! One binary, a module a step of a job's path. Every test has a database of its own, and all run in parallel.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod macros;
mod outcomes;
mod transactional;
mod days;
mod interleave;
mod guards;
mod lease;
mod model;
mod protocol_model;
mod migrate;
mod processes;
mod recovery;
mod wake;
mod wake_race;
mod fairness;
mod observe;
mod cli;
mod embedded;
mod enqueue;
mod durability;
mod refuse;
mod payloads;
mod panics;
mod registry;
mod schedule;
mod shutdown;
mod house;
mod statements;
mod outage;
mod bench;
mod bulk;
