//! What a payload type says of itself.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

use super::{options::Options, unique::UniqueKey};

/// What is fixed about a payload type: its options, and the keys that its fields make. Written by [`#[job]`](crate::job), seldom by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job type",
    note = "write `#[job]` above the struct, together with `#[derive(Serialize, Deserialize)]`"
)]
pub trait JobType: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// What the handler returns, kept with the completed job. `()` unless `output = ..` says otherwise.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The options given to `#[job(..)]`.
    const OPTIONS: Options;

    /// The ordering key that this job is enqueued under, unless another is given to the builder. From `key = ..` or `fifo`; `None` without them.
    ///
    /// Jobs of one key in one queue, of whatever types, run one at a time, in the order in which their enqueues committed, over any number of
    /// workers and across retries. The empty key is that of `fifo`: of the whole queue.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The payload of the jobs that `cron = ..` or `every = ..` enqueues: its default. `None` without them.
    fn scheduled() -> Option<Self> {
        None
    }

    /// The key that the fields named in `#[job(unique(fields(..)))]` make.
    fn unique_key(&self) -> UniqueKey {
        UniqueKey::none()
    }
}
