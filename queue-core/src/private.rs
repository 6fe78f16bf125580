//! What the expansion of `#[job]` may name. Not an API: it changes without notice.

pub use inventory::submit;

pub use crate::{
    job::{Handler, Job},
    options::{Durability, KeyPolicy, Options, Retain, StateKey},
    registry::Registration,
    retry::Backoff,
    unique::{OnConflict, Unique, UniqueKey, While},
};
pub use std::{
    borrow::Cow,
    option::Option::{self, Some},
    string::{String, ToString},
    time::Duration,
};
