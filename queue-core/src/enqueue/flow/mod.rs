//! Flows: sets of jobs that are enqueued together and depend on each other.

mod builder;
mod gather;
mod handle;
mod nested;
mod node;
mod plan;
mod source;
mod then;
mod write;

pub use self::{
    builder::Flow,
    gather::{Counts, Gather},
    handle::FlowHandle,
    nested::Nested,
    node::Node,
    plan::IfDead,
    source::Source,
    then::Then,
};
