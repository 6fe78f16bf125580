//! What a job type is: its options, how it is retried, what makes it unique, and the words that all rooms share. Pure: no database, no clock.

mod choices;
mod failure;
mod id;
mod job_type;
mod limit;
mod of;
mod options;
mod cron;
mod ending;
mod isolate;
mod retry;
mod span;
mod state_key;
mod system;
mod text;
mod timing;
mod unique;
mod version;

pub use self::{
    choices::{Durability, KeyPolicy, Priority, Retain},
    ending::{Anew, Counted, Ending, OrderingKey, Tells},
    failure::{Failure, FailureKind, JobResult, TerminalExt},
    id::{JobId, JobState, UnknownState},
    isolate::most_together,
    job_type::{JobType, no_upgrade},
    limit::Limit,
    of::Of,
    options::Options,
    retry::{Backoff, Outcome, Verdict, verdict},
    state_key::StateKey,
    system::Tick,
    timing::{Due, Missed, Overlap, Timing},
    unique::{Enqueued, OnConflict, Unique, UniqueKey, While},
    version::{OldPayload, stored_type, type_and_version},
};
pub(crate) use self::{
    failure::among,
    of::{Place, places_in},
    retry::LONGEST_WAIT,
    span::shown,
    system::System,
    text::check_output,
    version::NEWEST,
};
