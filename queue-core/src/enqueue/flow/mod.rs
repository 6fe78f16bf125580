//! Flows: jobs that are enqueued together, some of which wait until other jobs have ended.

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
