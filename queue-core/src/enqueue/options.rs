//! Options of an enqueue: queue, priority, attempts, times, keys and metadata. This module checks and encodes the options.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::SecondsFormat;
use serde::{Serialize, ser::SerializeMap};
use serde_json::value::RawValue;

use super::{expiry::Expiry, sealing::Sealing, start_time::StartTime, system::Membership};
use crate::{
    connect::TENANT,
    define::{Durability, JobType, KeyPolicy, OnConflict, While, format_duration, stored_type},
    error::Error,
    payload::{self, PayloadError},
    schema::{Store, check_name},
    trace::{TRACEPARENT, TRACESTATE, TraceContext},
};

/// Defines the option methods of a builder. The builder's method `options_mut` returns the [`EnqueueOptions`] that the methods change.
macro_rules! option_methods {
    (($($this:tt)*) -> $returned:ty, $same:ident) => {
        /// Delays the job by `wait`, measured by the database's clock. The maximum is 3,000 years.
        pub fn after($($this)*, wait: std::time::Duration) -> $returned {
            $same.options_mut().run = crate::enqueue::start_time::StartTime::After(wait);
            $same
        }

        /// Sets the earliest start time of the job. The time must be within the years 1970 to 9999, and may be in the past.
        pub fn at($($this)*, time: chrono::DateTime<chrono::Utc>) -> $returned {
            $same.options_mut().run = crate::enqueue::start_time::StartTime::At(time);
            $same
        }

        /// Sets the time by which the job must start, overriding the type's expiry
        /// ([`Options::expires`](crate::options::Options::expires)). A job that has not started by then, measured by the database's clock,
        /// expires and does not run.
        ///
        /// The time must be within the years 1970 to 9999. If the time has passed, the job expires as soon as a worker finds the job. The
        /// enqueue is rejected if the job is scheduled for this time or later.
        pub fn expires_at($($this)*, time: chrono::DateTime<chrono::Utc>) -> $returned {
            $same.options_mut().expires = crate::enqueue::expiry::Expiry::At(time);
            $same
        }

        /// Sets the expiry relative to the job's earliest start time, which is the time of the enqueue or the scheduled time. See
        /// [`expires_at`](Self::expires_at). The duration must be longer than zero and at most 3,000 years.
        pub fn expires_in($($this)*, wait: std::time::Duration) -> $returned {
            $same.options_mut().expires = crate::enqueue::expiry::Expiry::In(wait);
            $same
        }

        /// Overrides the priority of the job type. Jobs with a higher priority run first.
        pub fn priority($($this)*, priority: i16) -> $returned {
            $same.options_mut().priority = priority;
            $same
        }

        /// Overrides the queue of the job type. Only workers that serve this queue run the job.
        pub fn queue($($this)*, queue: impl Into<String>) -> $returned {
            $same.options_mut().queue = std::borrow::Cow::Owned(queue.into());
            $same
        }

        /// Overrides the maximum number of attempts of the job type. The minimum is 1.
        pub fn max_attempts($($this)*, max_attempts: i16) -> $returned {
            $same.options_mut().max_attempts = max_attempts;
            $same
        }

        /// Sets the ordering key, overriding the key that the payload defines ([`JobType::ordering_key`](crate::JobType::ordering_key)).
        /// The key may have any length and must not contain NUL.
        ///
        /// Jobs of one key in one queue run one at a time, in the commit order of their enqueues. An enqueue therefore waits for open
        /// transactions that have enqueued under the same key. Keys share 1024 locks, so an enqueue occasionally also waits for a
        /// transaction that has enqueued under another key.
        ///
        /// Two transactions that enqueue under several keys in separate calls may deadlock. The server then aborts one of the transactions.
        /// Enqueue such jobs together, with `enqueue_all` or in a `Batch`, which lock all keys in a fixed order.
        pub fn key($($this)*, key: impl Into<String>) -> $returned {
            $same.options_mut().key = Some(key.into());
            $same
        }

        /// Overrides the job type's policy for dead letters of the ordering key.
        pub fn key_policy($($this)*, key_policy: crate::define::KeyPolicy) -> $returned {
            $same.options_mut().key_policy = key_policy;
            $same
        }

        /// Sets the fairness key, overriding the key that the payload defines ([`JobType::fair_key`](crate::JobType::fair_key)). Jobs of
        /// one type with different fairness keys take turns, regardless of the number of jobs per key. The key may have any length and must
        /// not contain NUL.
        pub fn fair($($this)*, key: impl Into<String>) -> $returned {
            $same.options_mut().fair = Some(key.into());
            $same
        }

        /// Makes the job unique by `key`. The job is not enqueued if another job of its type holds the key in its queue. The key may have
        /// any length and must not contain NUL. This key takes precedence over the key derived from the type's fields. If one enqueue
        /// contains several jobs with the same key, only the first job is written.
        ///
        /// [`JobHandle::outcome`](crate::JobHandle::outcome) returns the outcome. Producers with the same key wait for each other's
        /// transactions, and a rollback frees the key. Uniqueness holds at every isolation level. At levels above read committed, an
        /// enqueue fails with a serialization error if it conflicts with a row that your snapshot does not contain. Transactions that
        /// take several keys in different orders may deadlock, and the server then aborts one of the transactions.
        pub fn unique($($this)*, key: impl Into<String>) -> $returned {
            $same.options_mut().unique.get_or_insert_default().key = Some(key.into());
            $same
        }

        /// Overrides how long the job holds its uniqueness key. Default: the job type's setting, or
        /// [`While::Live`](crate::options::While::Live) if the type has none.
        pub fn unique_while($($this)*, held: crate::define::While) -> $returned {
            $same.options_mut().unique.get_or_insert_default().held = Some(held);
            $same
        }

        /// Overrides how this enqueue resolves a conflict with another job that holds the uniqueness key. Default: the job type's setting,
        /// or [`OnConflict::Keep`](crate::OnConflict::Keep) if the type has none.
        pub fn on_conflict($($this)*, on_conflict: crate::define::OnConflict) -> $returned {
            $same.options_mut().unique.get_or_insert_default().on_conflict = Some(on_conflict);
            $same
        }

        /// Adds a value to the job's metadata, replacing any earlier value of the same key. A job's metadata has at most 4 KiB of JSON.
        ///
        /// Metadata is available to the handler ([`Context::meta`](crate::Context::meta)), to lists and filters of jobs, and to code that
        /// does not know the payload type.
        pub fn meta($($this)*, key: impl Into<String>, value: impl serde::Serialize) -> $returned {
            $same.options_mut().add_meta(key.into(), &value);
            $same
        }
    };
}
pub(super) use option_methods;

/// Defines the store and durability methods of a builder or a batch.
macro_rules! enqueue_methods {
    () => {
        /// Sets the store into which jobs are enqueued, instead of the default store.
        #[must_use = "returns the changed value"]
        pub fn store(mut self, store: crate::schema::Store) -> Self {
            self.store = store;
            self
        }

        /// Sets whether the commit of this enqueue waits for the WAL flush. By default, the commit of a flow waits. Any other commit waits
        /// by default if at least one of the enqueued job types requires it. See [`Durability`](crate::options::Durability) for the risks.
        ///
        /// The setting applies if the enqueue has its own transaction: on a pool, or on a connection outside a transaction. The setting
        /// has no effect in your transaction, because it would also apply to your other writes. Use `set local synchronous_commit = off`
        /// in your transaction.
        #[must_use = "returns the changed value"]
        pub fn durability(mut self, durability: crate::define::Durability) -> Self {
            self.durability = Some(durability);
            self
        }
    };
}
pub(super) use enqueue_methods;

/// Options of a job that is being enqueued. The initial values are the options of the job type.
///
/// [`Batch::add`](crate::Batch::add) returns the options of the added job. The builders of [`Job`](crate::Job) have the same methods.
///
/// ```
/// # use queue_core::{Batch, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Tick;
/// # fn example() -> Result<(), queue_core::Error> {
/// let mut batch = Batch::new();
/// batch.add(Tick)?.queue("clock").max_attempts(1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EnqueueOptions {
    pub(super) job_type: &'static str,
    /// Payload version of the job type.
    version: u16,
    pub(super) durability: Durability,
    pub(super) queue: Cow<'static, str>,
    pub(super) priority: i16,
    pub(super) max_attempts: i16,
    pub(super) run: StartTime,
    pub(super) expires: Expiry,
    /// Ordering key set by the enqueue; replaces the payload's ordering key.
    pub(super) key: Option<String>,
    pub(super) key_policy: KeyPolicy,
    /// Fairness key set by the enqueue; replaces the payload's fairness key.
    pub(super) fair: Option<String>,
    /// Uniqueness settings; `None` if the job is not unique.
    pub(super) unique: Option<Uniqueness>,
    /// Metadata by key. Each value is JSON text, or an encoding error that the enqueue returns.
    meta: BTreeMap<String, Result<Box<RawValue>, String>>,
    /// Membership of the job in a flow or a map.
    pub(super) system: Option<Membership>,
    /// Name of the keyring that seals the payload; `None` if the payload is stored unencrypted.
    seal: Option<&'static str>,
}

/// Maximum size in bytes of a job's metadata in the text form of jsonb. The SQL function `queue.meta_limit()` returns the same value.
const META_LIMIT: usize = 4096;

/// Uniqueness settings of a job, from the job type or set by the enqueue.
#[derive(Clone, Debug, Default)]
pub(super) struct Uniqueness {
    /// Key that replaces the key derived from the type's fields.
    pub(super) key: Option<String>,
    pub(super) held: Option<While>,
    pub(super) on_conflict: Option<OnConflict>,
}

impl EnqueueOptions {
    pub(crate) fn for_type<J: JobType>() -> Self {
        let options = J::OPTIONS;
        Self {
            job_type: options.name,
            version: options.version,
            durability: options.durability,
            queue: Cow::Borrowed(options.queue),
            priority: options.priority,
            max_attempts: options.max_attempts,
            run: StartTime::Now,
            expires: options.expires.map_or(Expiry::Never, Expiry::In),
            key: None,
            key_policy: options.key_policy,
            fair: None,
            unique: options.unique.map(|unique| Uniqueness { key: None, held: Some(unique.held), on_conflict: Some(unique.on_conflict) }),
            meta: BTreeMap::new(),
            system: None,
            seal: options.seal,
        }
    }

    /// Returns the stored name of the job type, which includes the payload version.
    pub(super) fn stored_type(&self) -> Cow<'static, str> {
        stored_type(self.job_type, self.version)
    }

    /// Returns the sealing of the payload, or `None` if the payload is not sealed.
    pub(super) fn sealing(&self) -> Option<Sealing> {
        self.seal.map(|keyring| Sealing { keyring, job_type: self.job_type, version: self.version })
    }

    /// Returns whether the options set no keys, metadata, system attributes or expiry. Keys that the payload defines are not checked here.
    pub(super) fn is_plain(&self) -> bool {
        self.key.is_none()
            && self.fair.is_none()
            && self.unique.is_none()
            && self.meta.is_empty()
            && self.system.is_none()
            && self.expires == Expiry::Never
    }

    /// Checks that the database can store the options.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_name("queue name", &self.queue)?;
        check_name("job type name", self.job_type)?;
        self.key.as_deref().map_or(Ok(()), |key| check_key("the ordering key", key))?;
        self.fair.as_deref().map_or(Ok(()), |key| check_key("the fair key", key))?;
        if self.max_attempts < 1 {
            return Err(Error::OutOfRange { what: "max_attempts", value: self.max_attempts.to_string(), range: "1 to 32767" });
        }
        if let Some(unique) = &self.unique {
            unique.check()?;
        }
        self.meta_text()?;
        self.system.as_ref().map_or(Ok(()), Membership::check)?;
        self.run.check()?;
        self.expires.check()
    }

    /// Checks that neither a start time nor an absolute expiry time is set, because the schedule sets the times.
    pub(super) fn check_without_time(&self) -> Result<(), Error> {
        let reject = |what| Err(Error::OutOfRange { what, value: "given".to_owned(), range: "left to the schedule" });
        match (self.run, self.expires) {
            (StartTime::Now, Expiry::At(_)) => reject("the time to expire at"),
            (StartTime::Now, _) => Ok(()),
            _ => reject("the time to run at"),
        }
    }

    /// Returns the metadata as JSON text, or `None` if the job has no metadata.
    pub(crate) fn meta_text(&self) -> Result<Option<String>, Error> {
        if self.meta.is_empty() {
            return Ok(None);
        }
        let out =
            |value| Err(Error::OutOfRange { what: "the metadata", value, range: "at most 4 KiB of JSON that jsonb stores unchanged" });
        if let Some((key, why)) = self.meta.iter().find_map(|(key, value)| Some((key, value.as_ref().err()?))) {
            return out(format!("invalid at `{}`: {why}", key.escape_debug()));
        }
        match payload::encode(&self.valid_meta(), META_LIMIT) {
            Err(PayloadError::TooLarge { size, .. }) => out(format!("of {size} bytes or more")),
            Err(error) => out(format!("invalid: {error}")),
            Ok(text) => Ok(Some(text)),
        }
    }

    /// Adds the trace context of the enqueue to the metadata, unless the caller has set a trace context. If the metadata would exceed the
    /// size limit, omits `tracestate`, or the whole trace context if `traceparent` does not fit either.
    pub(super) fn add_trace(&mut self, carried: Option<&TraceContext>) {
        let Some(TraceContext { traceparent, tracestate }) = carried else { return };
        if self.meta.contains_key(TRACEPARENT) || self.meta.contains_key(TRACESTATE) {
            return;
        }
        let parts = [Some((TRACEPARENT, traceparent)), tracestate.as_ref().map(|state| (TRACESTATE, state))];
        for (key, text) in parts.into_iter().flatten() {
            self.add_meta(key.to_owned(), text);
            if payload::encode(&self.valid_meta(), META_LIMIT).is_err() {
                self.meta.remove(key);
                return;
            }
        }
    }

    pub(super) fn has_meta(&self, key: &str) -> bool {
        self.meta.contains_key(key)
    }

    /// Adds the connection's tenant to the metadata and returns the tenant's store. Returns `None` if the connection has no tenant.
    pub(super) fn set_tenant(&mut self, tenant: Option<(Store, String)>) -> Option<Store> {
        let (store, key) = tenant?;
        self.add_meta(TENANT.to_owned(), &key);
        Some(store)
    }

    pub(super) fn add_meta(&mut self, key: String, value: &impl Serialize) {
        let text = payload::encode(value, payload::DEFAULT_LIMIT).map_err(|error| error.to_string());
        self.meta.insert(key, text.and_then(|text| RawValue::from_string(text).map_err(|error| error.to_string())));
    }

    fn valid_meta(&self) -> BTreeMap<&str, &RawValue> {
        self.meta.iter().filter_map(|(key, value)| Some((&**key, &**value.as_ref().ok()?))).collect()
    }

    /// Serializes the options under the names that `queue.enqueue` expects. `EnqueueRow` serializes the ordering key, the fairness key and
    /// the uniqueness key, because the payload may define them.
    pub(super) fn write<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        to.serialize_entry("queue", &self.queue)?;
        to.serialize_entry("priority", &self.priority)?;
        to.serialize_entry("max_attempts", &self.max_attempts)?;
        match self.run {
            StartTime::Now => {}
            StartTime::After(wait) => to.serialize_entry("after", &wait.as_secs_f64())?,
            StartTime::At(time) => to.serialize_entry("run_at", &time.to_rfc3339_opts(SecondsFormat::Micros, true))?,
        }
        match self.expires {
            Expiry::Never => {}
            Expiry::In(wait) => to.serialize_entry("expires_in", &wait.as_secs_f64())?,
            Expiry::At(time) => to.serialize_entry("expires_at", &time.to_rfc3339_opts(SecondsFormat::Micros, true))?,
        }
        if let Some(unique) = &self.unique {
            to.serialize_entry("unique_while", &unique.held.unwrap_or_default().to_sql())?;
            to.serialize_entry("on_conflict", unique.on_conflict.unwrap_or_default().to_sql())?;
        }
        if self.version > 1 {
            to.serialize_entry("version", &self.version)?;
        }
        if !self.meta.is_empty() {
            to.serialize_entry("meta", &self.valid_meta())?;
        }
        if let Some(system) = &self.system {
            to.serialize_entry("system", system)?;
        }
        Ok(())
    }

    fn options_mut(&mut self) -> &mut Self {
        self
    }

    option_methods!((&mut self) -> &mut Self, self);
}

impl Uniqueness {
    fn check(&self) -> Result<(), Error> {
        match self.held {
            Some(While::For(time)) if !While::For(time).is_in_range() => {
                Err(Error::OutOfRange { what: "the time of a uniqueness key", value: format_duration(time), range: "1 ms to 1000 years" })
            }
            _ => self.key.as_deref().map_or(Ok(()), |key| check_key("the uniqueness key", key)),
        }
    }
}

/// Checks that a key has no NUL character. The database hashes keys as text, which cannot contain NUL.
pub(super) fn check_key(what: &'static str, key: &str) -> Result<(), Error> {
    if !key.contains('\0') {
        return Ok(());
    }
    let value = key.chars().take(32).collect::<String>().escape_debug().to_string();
    Err(Error::OutOfRange { what, value, range: "text without NUL" })
}
