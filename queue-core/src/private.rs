//! What the expansion of `#[job]` may name. Not an API: it changes without notice.

pub use inventory::submit;

pub use crate::{
    context::{Handler, Registration, Upgraded, upgrade},
    define::{Backoff, Durability, JobType, KeyPolicy, Limit, OnConflict, Options, Retain, StateKey, Unique, UniqueKey, While, no_upgrade},
    schedule::Declared,
};
pub use std::{
    borrow::Cow,
    option::Option::{self, Some},
    result::Result,
    string::{String, ToString},
    time::Duration,
};

/// The payload of a schedule's jobs.
pub fn default<T: Default>() -> T {
    T::default()
}
