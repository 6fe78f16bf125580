//! Trait of payload types.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

use super::{failure::Failure, options::Options, unique::UniqueKey, version::OldPayload};

/// Job type of a payload: its options, and the keys computed from its fields. Implemented by [`#[job]`](crate::job), rarely without it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job type",
    note = "write `#[job]` above the struct, together with `#[derive(Serialize, Deserialize)]`"
)]
pub trait JobType: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// Return type of the handler, stored with the completed job. `()` unless set with `output = ..`.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Context type of the handler: [`Context`](crate::Context), or [`Durable`](crate::Durable) for a `durable` type.
    type Cx;

    /// Options given to `#[job(..)]`.
    const OPTIONS: Options;

    /// Returns the ordering key of this job, unless the enqueue sets another. From `key = ..` or `fifo`; `None` without them.
    ///
    /// Jobs of one key in one queue run one at a time, regardless of their types, in the commit order of their enqueues. This holds over
    /// any number of workers and across retries. The empty key is that of `fifo`, which orders the whole queue.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Returns the fairness key of this job, unless the enqueue sets another. From `fair = ..`; `None` without it.
    fn fair_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Returns the payload of jobs enqueued by `cron = ..` or `every = ..`: the type's default. `None` without them.
    fn scheduled() -> Option<Self> {
        None
    }

    /// Converts the payload of an older [`version`](Options::version) into this type. From `upgrade = from_v1`, or for later versions from
    /// `upgrade(1 = from_v1, 2 = from_v2)`.
    ///
    /// Each function takes the old payload, as a type of its own or as `serde_json::Value`. It returns this type, or a `Result` of it with
    /// a `&'static str` as the error message, which must not contain the payload.
    ///
    /// # Errors
    /// A payload that cannot be upgraded is a terminal failure: the job becomes a dead letter, to be requeued once a release can read it.
    fn upgrade(old: OldPayload<'_>) -> Result<Self, Failure> {
        no_upgrade(old)
    }

    /// Returns the uniqueness key of the fields named in `#[job(unique(fields(..)))]`.
    fn unique_key(&self) -> UniqueKey {
        UniqueKey::none()
    }
}

/// Returns the error for a version without an upgrade.
pub fn no_upgrade<T: JobType>(old: OldPayload<'_>) -> Result<T, Failure> {
    let (version, name, newest) = (old.version(), T::OPTIONS.name, T::OPTIONS.version);
    Err(Failure::terminal(format!("`{name}`, of version {newest}, has no upgrade from payloads of version {version}")))
}
