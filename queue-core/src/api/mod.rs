//! Public modules of the crate. Each module re-exports the types of one subject.

pub mod batch;
pub mod drivers;
pub mod durable;
pub mod flow;
pub mod middleware;
pub mod options;
pub mod registry;
pub mod wait;
