//! Trait that payload types implement to describe their job type.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

use super::{failure::Failure, options::Options, unique::UniqueKey, version::OldPayload};

/// Job type of a payload: its options, and the keys computed from its fields. The attribute [`#[job]`](crate::job) implements the trait;
/// manual implementations are rare.
///
/// A payload implements `Serialize` and `DeserializeOwned`. Generic code that calls serde lists these bounds in addition to `JobType`,
/// because they are not supertraits.
///
/// ```
/// use queue_core::{JobType, job};
/// use serde::{Deserialize, Serialize};
///
/// #[job(send_only, queue = "mail", max_attempts = 5)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail { to: String }
///
/// assert_eq!(SendEmail::OPTIONS.name, "send_email");
/// assert_eq!(SendEmail::OPTIONS.queue, "mail");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "not a job type",
    note = "write `#[job]` above the struct, together with `#[derive(Serialize, Deserialize)]`"
)]
pub trait JobType: Payload + Send + Sync + Sized + 'static {
    /// Output type of the handler, `()` unless `output = ..` sets another type. The output is stored with the completed job.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// Context type of the handler: [`Context`](crate::Context), or [`Durable`](crate::durable::Durable) for a `durable` type.
    type Cx;

    /// Options of the job type, as given to `#[job(..)]`.
    const OPTIONS: Options;

    /// Whether payloads of all older versions can be upgraded. False only for a `send_only` type with a version above 1 and without the
    /// option `upgrade`. A function with `#[handler]` for such a type does not compile.
    #[doc(hidden)]
    const HAS_UPGRADES: bool = true;

    /// Returns the job's ordering key. The option `key = ..` or `fifo` defines the key, and an enqueue can override it. Returns `None`
    /// without these options.
    ///
    /// Jobs with the same key and queue run one at a time, in the order in which their enqueues committed. Jobs of different types share
    /// this order. The order holds for any number of workers and across retries. The option `fifo` uses the empty key, which orders all
    /// jobs of `fifo` types in a queue.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Returns the job's fairness key. The option `fair = ..` defines the key, and an enqueue can override it. Returns `None` without this
    /// option.
    fn fair_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Returns the payload for jobs that the type's schedule enqueues: the default value of the type. Returns `None` for a type without
    /// the option `cron = ..` or `every = ..`.
    fn scheduled() -> Option<Self> {
        None
    }

    /// Converts the payload of an older [`version`](Options::version) into this type. The option `upgrade = from_v1` sets the upgrade
    /// function. With several old versions, write `upgrade(1 = from_v1, 2 = from_v2)`.
    ///
    /// Each function takes the old payload as a type with the old fields, or as `serde_json::Value`. A function returns this type, or a
    /// `Result` with this type and a `&'static str` as the error message. The message cannot contain payload data.
    ///
    /// # Errors
    /// Returns a terminal failure if the payload cannot be upgraded. The job becomes a dead letter, which an operator can requeue once a
    /// release can decode the payload.
    fn upgrade(old: OldPayload<'_>) -> Result<Self, Failure> {
        no_upgrade(old)
    }

    /// Returns the uniqueness key, computed from the fields in `#[job(unique(fields(..)))]`.
    fn unique_key(&self) -> UniqueKey {
        UniqueKey::none()
    }
}

/// Bound on payload types. Every type with `Serialize` and `DeserializeOwned` satisfies it.
///
/// The serde traits are not supertraits of [`JobType`]. Otherwise rustc would report each serde trait, with a list of foreign types, for
/// every use of a payload without the derives. For this bound, rustc prints the message below.
#[diagnostic::on_unimplemented(
    message = "the payload `{Self}` does not implement both `Serialize` and `Deserialize`",
    label = "write `#[derive(Serialize, Deserialize)]` above the struct"
)]
pub trait Payload: Sized {
    /// `Self`, with the bounds that generic code requires.
    #[doc(hidden)]
    type Serde: Serialize + DeserializeOwned;

    #[doc(hidden)]
    fn as_serde(&self) -> &Self::Serde;

    #[doc(hidden)]
    fn from_serde(payload: Self::Serde) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Payload for T {
    type Serde = T;

    fn as_serde(&self) -> &T {
        self
    }

    fn from_serde(payload: T) -> T {
        payload
    }
}

/// Returns the error for a payload whose version has no upgrade.
pub fn no_upgrade<T: JobType>(old: OldPayload<'_>) -> Result<T, Failure> {
    let (version, name, newest) = (old.version(), T::OPTIONS.name, T::OPTIONS.version);
    Err(Failure::terminal(format!("`{name}`, of version {newest}, has no upgrade from payloads of version {version}")))
}
