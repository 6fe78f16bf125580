//! Definition of job types (options, retries and uniqueness), and basic types that all other modules use. This module uses neither the
//! database nor a clock.

mod choices;
mod failure;
mod id;
mod job_type;
mod limit;
mod node_output;
mod options;
mod ending;
mod batch_size;
mod retry;
mod duration;
mod state_key;
mod system;
mod text;
mod timing;
mod unique;
mod version;

pub use self::{
    batch_size::most_together,
    choices::{Durability, KeyPolicy, Priority, Retain},
    ending::{Dependents, Ending, HistoryOutcome, OrderingKey, RestartPayload, SettlePath},
    failure::{Failure, FailureKind, JobResult, TerminalExt},
    id::{JobId, JobState, UnknownState},
    job_type::{JobType, Payload, no_upgrade},
    limit::Limit,
    node_output::NodeOutput,
    options::Options,
    retry::{Backoff, Outcome, Verdict, verdict},
    state_key::StateKey,
    system::Tick,
    timing::{DueTicks, Missed, Overlap, Timing},
    unique::{EnqueueOutcome, OnConflict, Unique, UniqueKey, While},
    version::{OldPayload, stored_type, type_and_version},
};
pub(crate) use self::{
    duration::format_duration,
    failure::batch_error,
    node_output::{NodeRef, collect_node_refs},
    retry::MAX_WAIT,
    system::SystemAttributes,
    text::check_output,
    version::MAX_VERSION,
};
