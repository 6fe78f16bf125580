//! Items named by the expansion of `#[job]`. Not an API: they change without notice.

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

/// Returns the payload of a schedule's jobs.
pub fn default<T: Default>() -> T {
    T::default()
}
