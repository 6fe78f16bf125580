//! What is said of a job besides its payload: where it goes, how often it is tried, when it may run. Checked and encoded here, written elsewhere.

use std::{borrow::Cow, collections::BTreeMap};

use chrono::SecondsFormat;
use serde::{Serialize, ser::SerializeMap};
use serde_json::value::RawValue;

use super::{expires::Expires, run::Run, sealing::Sealing, system::Awaited};
use crate::{
    connect::TENANT,
    define::{Durability, JobType, KeyPolicy, OnConflict, While, shown, stored_type},
    error::Error,
    payload::{self, PayloadError},
    schema::{Store, check_name},
    trace::{TRACEPARENT, TRACESTATE, TraceContext},
};

/// The methods by which a builder takes options: `said` gives the [`EnqueueOptions`] that they change.
macro_rules! option_methods {
    (($($this:tt)*) -> $returned:ty, $same:ident) => {
        /// Not before this long from now, by the database's clock. At most 3,000 years.
        pub fn after($($this)*, wait: std::time::Duration) -> $returned {
            $same.said().run = crate::enqueue::run::Run::After(wait);
            $same
        }

        /// Not before this time, which may have passed already. From 1970 to 9999.
        pub fn at($($this)*, time: chrono::DateTime<chrono::Utc>) -> $returned {
            $same.said().run = crate::enqueue::run::Run::At(time);
            $same
        }

        /// Unless it has begun by this time, by the database's clock, it is over, as expired, and not run: instead of what the type says
        /// ([`Options::expires`](crate::Options::expires)). From 1970 to 9999; one that has passed is over as soon as a worker looks. Refused if it
        /// may not run before.
        pub fn expires_at($($this)*, time: chrono::DateTime<chrono::Utc>) -> $returned {
            $same.said().expires = crate::enqueue::expires::Expires::At(time);
            $same
        }

        /// As [`expires_at`](Self::expires_at), this long after it may run first: its enqueue, or the time that it is put off to. Longer than zero, and
        /// at most 3,000 years.
        pub fn expires_in($($this)*, wait: std::time::Duration) -> $returned {
            $same.said().expires = crate::enqueue::expires::Expires::In(wait);
            $same
        }

        /// With this priority instead of the type's; higher runs first.
        pub fn priority($($this)*, priority: i16) -> $returned {
            $same.said().priority = priority;
            $same
        }

        /// Into this queue instead of the type's. A worker that serves only named queues must name it.
        pub fn queue($($this)*, queue: impl Into<String>) -> $returned {
            $same.said().queue = std::borrow::Cow::Owned(queue.into());
            $same
        }

        /// With this many attempts instead of the type's; at least 1.
        pub fn max_attempts($($this)*, max_attempts: i16) -> $returned {
            $same.said().max_attempts = max_attempts;
            $same
        }

        /// Under this ordering key instead of the job's own ([`JobType::ordering_key`](crate::JobType::ordering_key)). Of any length; without NUL.
        ///
        /// Jobs of one key in one queue run one at a time, in the order in which their enqueues committed. So this enqueue waits for transactions
        /// that have enqueued under the key and are open still (now and then for those of another key: there are 1024 locks), and others
        /// wait for this one's. Two transactions that enqueue under several keys, one after the other, may wait for each other: the server
        /// then ends one of them. Enqueue together, by `enqueue_all` or in a `Batch`: that locks keys in one order.
        pub fn key($($this)*, key: impl Into<String>) -> $returned {
            $same.said().key = Some(key.into());
            $same
        }

        /// With this policy on dead jobs of its ordering key instead of the type's.
        pub fn key_policy($($this)*, key_policy: crate::define::KeyPolicy) -> $returned {
            $same.said().key_policy = key_policy;
            $same
        }

        /// With this fair key instead of the job's own ([`JobType::fair_key`](crate::JobType::fair_key)): it takes its turn among jobs of its type with
        /// other keys, however many there are of each. Of any length; without NUL.
        pub fn fair($($this)*, key: impl Into<String>) -> $returned {
            $same.said().fair = Some(key.into());
            $same
        }

        /// Unless a job of this type with this key holds it in this queue. The key may be any text without U+0000, of any length, and goes before
        /// the one that the type's fields make. Of many jobs enqueued with one key, the first is.
        ///
        /// The handle says what came of it: [`JobHandle::outcome`](crate::JobHandle::outcome). Producers with the same key wait for each other's
        /// transactions; a rollback gives the key back. Exact at every isolation level: above read committed, a conflict with what your snapshot
        /// does not show is a serialization failure. A transaction that takes several keys in another order than others do may be ended as a
        /// deadlock.
        pub fn unique($($this)*, key: impl Into<String>) -> $returned {
            $same.said().unique.get_or_insert_default().key = Some(key.into());
            $same
        }

        /// How long the key is held, instead of what the type says. Default: [`While::Live`](crate::While::Live).
        pub fn unique_while($($this)*, held: crate::define::While) -> $returned {
            $same.said().unique.get_or_insert_default().held = Some(held);
            $same
        }

        /// What becomes of this enqueue if the key is held, instead of what the type says. Default: [`OnConflict::Keep`](crate::OnConflict::Keep).
        pub fn on_conflict($($this)*, on_conflict: crate::define::OnConflict) -> $returned {
            $same.said().unique.get_or_insert_default().on_conflict = Some(on_conflict);
            $same
        }

        /// With this value in its metadata, beside those of other keys: for its handler ([`Context::meta`](crate::Context::meta)), for lists and
        /// filters, and for whoever knows nothing of its payload. A key said again replaces its value. At most 4 KiB of JSON in all.
        pub fn meta($($this)*, key: impl Into<String>, value: impl serde::Serialize) -> $returned {
            $same.said().add_meta(key.into(), &value);
            $same
        }
    };
}
pub(super) use option_methods;

/// The methods by which a builder, or a batch, is told where and how to write.
macro_rules! enqueue_methods {
    () => {
        /// Into this store instead of the default one.
        #[must_use = "it returns what was changed"]
        pub fn store(mut self, store: crate::schema::Store) -> Self {
            self.store = store;
            self
        }

        /// Whether the commit of this enqueue waits for the disk, instead of what the type says (of several, it waits if one of them says so); see
        /// [`Durability`](crate::Durability) for what is risked.
        ///
        /// It counts where the enqueue is a transaction of its own: on a pool, or on a connection outside a transaction. In a transaction of
        /// yours it changes nothing, for that would be the durability of your other writes: say `set local synchronous_commit = off` there.
        #[must_use = "it returns what was changed"]
        pub fn durability(mut self, durability: crate::define::Durability) -> Self {
            self.durability = Some(durability);
            self
        }
    };
}
pub(super) use enqueue_methods;

/// What is said of a job that is to be enqueued: its type's options, and what differs from them.
///
/// [`Batch::add`](crate::Batch::add) gives it, for the job that was added. The builders of [`Job`](crate::Job) have the same methods.
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
    /// Of the payload.
    version: u16,
    pub(super) durability: Durability,
    pub(super) queue: Cow<'static, str>,
    pub(super) priority: i16,
    pub(super) max_attempts: i16,
    pub(super) run: Run,
    pub(super) expires: Expires,
    /// Instead of the job's own.
    pub(super) key: Option<String>,
    pub(super) key_policy: KeyPolicy,
    /// Instead of the job's own.
    pub(super) fair: Option<String>,
    /// Some if the job is unique.
    pub(super) unique: Option<Uniqueness>,
    /// Each as JSON text, or why there is none.
    meta: BTreeMap<String, Result<Box<RawValue>, String>>,
    /// What waits for its end, if anything does.
    pub(super) system: Option<Awaited>,
    /// The keyring, if the payload is stored encrypted.
    seal: Option<&'static str>,
}

/// The most bytes of a job's metadata as jsonb prints it; `queue.meta_limit()` in SQL says the same.
const META_LIMIT: usize = 4096;

/// What was said of a job's uniqueness, by its type or by its enqueue.
#[derive(Clone, Debug, Default)]
pub(super) struct Uniqueness {
    /// The key that was given; else the type's fields make it.
    pub(super) key: Option<String>,
    pub(super) held: Option<While>,
    pub(super) on_conflict: Option<OnConflict>,
}

impl EnqueueOptions {
    pub(crate) fn of<J: JobType>() -> Self {
        let options = J::OPTIONS;
        Self {
            job_type: options.name,
            version: options.version,
            durability: options.durability,
            queue: Cow::Borrowed(options.queue),
            priority: options.priority,
            max_attempts: options.max_attempts,
            run: Run::Now,
            expires: options.expires.map_or(Expires::Never, Expires::In),
            key: None,
            key_policy: options.key_policy,
            fair: None,
            unique: options.unique.map(|unique| Uniqueness { key: None, held: Some(unique.held), on_conflict: Some(unique.on_conflict) }),
            meta: BTreeMap::new(),
            system: None,
            seal: options.seal,
        }
    }

    /// The name under which the job is stored.
    pub(super) fn stored_type(&self) -> Cow<'static, str> {
        stored_type(self.job_type, self.version)
    }

    /// How the payload is sealed, if it is to be.
    pub(super) fn sealing(&self) -> Option<Sealing> {
        self.seal.map(|keyring| Sealing { keyring, job_type: self.job_type, version: self.version })
    }

    /// Whether a job without keys of its own is plain: all that is said of it fits the columns of an entry.
    pub(super) fn are_plain(&self) -> bool {
        self.key.is_none()
            && self.fair.is_none()
            && self.unique.is_none()
            && self.meta.is_empty()
            && self.system.is_none()
            && self.expires == Expires::Never
    }

    /// Whether the database can hold them.
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
        self.system.as_ref().map_or(Ok(()), Awaited::check)?;
        self.run.check()?;
        self.expires.check()
    }

    /// Whether they say nothing of a time, which is another's to say.
    pub(super) fn check_now(&self) -> Result<(), Error> {
        let said = |what| Err(Error::OutOfRange { what, value: "given".to_owned(), range: "left to the schedule" });
        match (self.run, self.expires) {
            (Run::Now, Expires::At(_)) => said("the time to expire at"),
            (Run::Now, _) => Ok(()),
            _ => said("the time to run at"),
        }
    }

    /// Its metadata as JSON text, if it has any.
    pub(crate) fn meta_text(&self) -> Result<Option<String>, Error> {
        if self.meta.is_empty() {
            return Ok(None);
        }
        let out =
            |value| Err(Error::OutOfRange { what: "the metadata", value, range: "at most 4 KiB of JSON that jsonb gives back exactly" });
        if let Some((key, why)) = self.meta.iter().find_map(|(key, value)| Some((key, value.as_ref().err()?))) {
            return out(format!("wrong at `{}`: {why}", key.escape_debug()));
        }
        match payload::encode(&self.said_meta(), META_LIMIT) {
            Err(PayloadError::TooLarge { size, .. }) => out(format!("of {size} bytes or more")),
            Err(error) => out(format!("wrong: {error}")),
            Ok(text) => Ok(Some(text)),
        }
    }

    /// Adds the trace that it is enqueued in to its metadata, unless these say one: that of the caller wins. What does not fit is left out: first
    /// the state of vendors, then all of it.
    pub(super) fn carry(&mut self, carried: Option<&TraceContext>) {
        let Some(TraceContext { traceparent, tracestate }) = carried else { return };
        if self.meta.contains_key(TRACEPARENT) || self.meta.contains_key(TRACESTATE) {
            return;
        }
        let parts = [Some((TRACEPARENT, traceparent)), tracestate.as_ref().map(|state| (TRACESTATE, state))];
        for (key, text) in parts.into_iter().flatten() {
            self.add_meta(key.to_owned(), text);
            if payload::encode(&self.said_meta(), META_LIMIT).is_err() {
                self.meta.remove(key);
                return;
            }
        }
    }

    pub(super) fn has_meta(&self, key: &str) -> bool {
        self.meta.contains_key(key)
    }

    /// Says for which tenant it is, if it is for one; returns the store of that.
    pub(super) fn place(&mut self, tenant: Option<(Store, String)>) -> Option<Store> {
        let (store, key) = tenant?;
        self.add_meta(TENANT.to_owned(), &key);
        Some(store)
    }

    pub(super) fn add_meta(&mut self, key: String, value: &impl Serialize) {
        let text = payload::encode(value, payload::DEFAULT_LIMIT).map_err(|error| error.to_string());
        self.meta.insert(key, text.and_then(|text| RawValue::from_string(text).map_err(|error| error.to_string())));
    }

    fn said_meta(&self) -> BTreeMap<&str, &RawValue> {
        self.meta.iter().filter_map(|(key, value)| Some((&**key, &**value.as_ref().ok()?))).collect()
    }

    /// Writes them by the names that `queue.enqueue` gives them; but not the keys, which a job may have of its own: see `Row`.
    pub(super) fn write<M: SerializeMap>(&self, to: &mut M) -> Result<(), M::Error> {
        to.serialize_entry("queue", &self.queue)?;
        to.serialize_entry("priority", &self.priority)?;
        to.serialize_entry("max_attempts", &self.max_attempts)?;
        match self.run {
            Run::Now => {}
            Run::After(wait) => to.serialize_entry("after", &wait.as_secs_f64())?,
            Run::At(time) => to.serialize_entry("run_at", &time.to_rfc3339_opts(SecondsFormat::Micros, true))?,
        }
        match self.expires {
            Expires::Never => {}
            Expires::In(wait) => to.serialize_entry("expires_in", &wait.as_secs_f64())?,
            Expires::At(time) => to.serialize_entry("expires_at", &time.to_rfc3339_opts(SecondsFormat::Micros, true))?,
        }
        if let Some(unique) = &self.unique {
            to.serialize_entry("unique_while", &unique.held.unwrap_or_default().to_sql())?;
            to.serialize_entry("on_conflict", unique.on_conflict.unwrap_or_default().to_sql())?;
        }
        if self.version > 1 {
            to.serialize_entry("version", &self.version)?;
        }
        if !self.meta.is_empty() {
            to.serialize_entry("meta", &self.said_meta())?;
        }
        if let Some(system) = &self.system {
            to.serialize_entry("system", system)?;
        }
        Ok(())
    }

    fn said(&mut self) -> &mut Self {
        self
    }

    option_methods!((&mut self) -> &mut Self, self);
}

impl Uniqueness {
    fn check(&self) -> Result<(), Error> {
        match self.held {
            Some(While::For(time)) if !While::For(time).fits() => {
                Err(Error::OutOfRange { what: "the time of a uniqueness key", value: shown(time), range: "1 ms to 1000 years" })
            }
            _ => self.key.as_deref().map_or(Ok(()), |key| check_key("the uniqueness key", key)),
        }
    }
}

/// Keys are hashed as text, which the database has without NUL.
pub(super) fn check_key(what: &'static str, key: &str) -> Result<(), Error> {
    if !key.contains('\0') {
        return Ok(());
    }
    let value = key.chars().take(32).collect::<String>().escape_debug().to_string();
    Err(Error::OutOfRange { what, value, range: "a text without NUL" })
}
