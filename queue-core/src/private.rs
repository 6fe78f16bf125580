//! Items used by the code that `#[job]` generates. They are not part of the public API and may change in any release.

pub use inventory::submit;

pub use crate::{
    context::{
        BatchContext, BatchFunction, BatchHandler, BatchRunner, ContextAs, Function, Handler, HandlerJob, JobBatch, JobFuture, JobRunner,
        Registrar, Registration, Upgraded, into_context, upgrade,
    },
    define::{
        Backoff, Durability, JobType, KeyPolicy, Limit, OldPayload, OnConflict, Options, Payload, Retain, StateKey, Unique, UniqueKey,
        While, no_upgrade,
    },
    schedule::DeclaredSchedule,
};
pub use std::{
    assert,
    borrow::Cow,
    marker::{Send, Sync},
    option::Option::{self, Some},
    result::Result,
    string::{String, ToString},
    time::Duration,
    unreachable,
};

/// Creates the registration of a job type that implements `Handler`.
pub const fn registration<T: Handler>() -> Registration {
    Registration::of::<T>()
}

/// Creates the registration of a job type that implements `BatchHandler`.
pub const fn batch_registration<T: BatchHandler>() -> Registration {
    Registration::of_batch::<T>()
}

/// Returns the default payload for the jobs of a schedule.
pub fn default<T: Default>() -> T {
    T::default()
}
