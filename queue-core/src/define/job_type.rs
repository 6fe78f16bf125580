//! What a payload type says of itself.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

use super::{failure::Failure, options::Options, unique::UniqueKey, version::OldPayload};

/// What is fixed about a payload type: its options, and the keys that its fields make. Written by [`#[job]`](crate::job), seldom by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job type",
    note = "write `#[job]` above the struct, together with `#[derive(Serialize, Deserialize)]`"
)]
pub trait JobType: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// What the handler returns, kept with the completed job. `()` unless `output = ..` says otherwise.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// What its handler is given: [`Context`](crate::Context), or [`Durable`](crate::Durable) of a type that is `durable`.
    type Cx;

    /// The options given to `#[job(..)]`.
    const OPTIONS: Options;

    /// The ordering key that this job is enqueued under, unless another is given to the builder. From `key = ..` or `fifo`; `None` without them.
    ///
    /// Jobs of one key in one queue, of whatever types, run one at a time, in the order in which their enqueues committed, over any number of
    /// workers and across retries. The empty key is that of `fifo`: of the whole queue.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The key by whose line this job takes its turn, unless another is given to the builder. From `fair = ..`; `None` without it.
    fn fair_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The payload of the jobs that `cron = ..` or `every = ..` enqueues: its default. `None` without them.
    fn scheduled() -> Option<Self> {
        None
    }

    /// `upgrade = from_v1`, or of a later version `upgrade(1 = from_v1, 2 = from_v2)`: how a payload of an older [`version`](Options::version) becomes one
    /// of this type. Each is a function from what the payload was, a type of its own or `serde_json::Value`, to this type, or to a `Result` of it with a
    /// `&'static str` that says what is wrong: never the payload.
    ///
    /// # Errors
    /// A payload that cannot be upgraded is a terminal failure: the job is a dead letter, to be requeued once a release reads it.
    fn upgrade(old: OldPayload<'_>) -> Result<Self, Failure> {
        no_upgrade(old)
    }

    /// The key that the fields named in `#[job(unique(fields(..)))]` make.
    fn unique_key(&self) -> UniqueKey {
        UniqueKey::none()
    }
}

/// That there is none from this version.
pub fn no_upgrade<T: JobType>(old: OldPayload<'_>) -> Result<T, Failure> {
    let (version, name, newest) = (old.version(), T::OPTIONS.name, T::OPTIONS.version);
    Err(Failure::terminal(format!("the payload is of version {version}, and `{name}`, of version {newest}, has no upgrade from that")))
}
