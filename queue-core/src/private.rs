//! Items used by the code that `#[job]` generates. These items are not a public API and may change in any release.

pub use inventory::submit;

pub use crate::{
    context::{Handler, Registration, Upgraded, upgrade},
    define::{Backoff, Durability, JobType, KeyPolicy, Limit, OnConflict, Options, Retain, StateKey, Unique, UniqueKey, While, no_upgrade},
    schedule::DeclaredSchedule,
};
pub use std::{
    borrow::Cow,
    option::Option::{self, Some},
    result::Result,
    string::{String, ToString},
    time::Duration,
};

/// Returns the default payload for the jobs of a schedule.
pub fn default<T: Default>() -> T {
    T::default()
}
