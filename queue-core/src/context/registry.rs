//! Registry of the job types that this binary can run.
//!
//! `#[job]` and `#[handler]` submit a [`Registration`] at link time, and [`Registry::linked`] collects all registrations. The linker
//! omits crates to which the binary does not refer, and the job types in such crates are then missing. An empty registry is therefore an
//! error, and the error text names this cause.

use std::{
    any::{TypeId, type_name},
    collections::BTreeMap,
    fmt,
    future::{Future, pending},
    pin::Pin,
};

#[cfg(feature = "testing")]
use super::forms::PayloadForms;
pub use super::registry_error::RegistryError;
use super::{
    Durable, HandlerContext as _, JobRunner, States,
    batch::{self, AnyBatch, BatchRunner},
    decode::decode_payload,
};
use crate::{
    define::{Failure, JobType, MAX_VERSION, Options, StateKey, TerminalExt as _},
    payload::encode_output,
    schema::check_name,
    seal,
};

/// Type-erased pair of a job type and its handler.
#[derive(Clone, Copy)]
pub struct Registration {
    options: Options,
    rust_type: fn() -> &'static str,
    /// Function that returns the id of the handler's Rust type.
    handler: fn() -> TypeId,
    /// Function that returns the full path of the handler's Rust type, for error messages.
    handler_name: fn() -> &'static str,
    /// State types that the handler requires in addition to the state types in the options.
    state: &'static [StateKey],
    run: RunFn,
    is_durable: bool,
    /// Function that creates an empty batch. Set only for batch handlers.
    batch: Option<fn() -> Box<dyn AnyBatch>>,
    #[cfg(feature = "testing")]
    pub(crate) forms: fn() -> PayloadForms,
}

/// Function that decodes a payload and runs the handler. The output is JSON text, or `None` for JSON null.
type RunFn = for<'a> fn(&'a str, &'a Durable) -> HandlerFuture<'a>;

/// Future of a running handler. Resolves to the output as JSON text.
pub type HandlerFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Failure>> + Send + 'a>>;

inventory::collect!(Registration);

/// Name prefix of built-in job types. Every worker runs built-in types, even if the worker is restricted to a list of types.
const BUILT_IN_PREFIX: &str = "queue:";

impl Registration {
    /// Creates the registration of the handler `H` and its job type.
    pub const fn of<H: JobRunner>() -> Self {
        Self {
            options: H::Job::OPTIONS,
            rust_type: type_name::<H::Job>,
            handler: TypeId::of::<H>,
            handler_name: type_name::<H>,
            state: H::STATE,
            run: run::<H>,
            is_durable: <H::Job as JobType>::Cx::IS_DURABLE,
            batch: None,
            #[cfg(feature = "testing")]
            forms: PayloadForms::of::<H::Job>,
        }
    }

    /// Creates the registration of the batch handler `H` and its job type.
    pub const fn of_batch<H: BatchRunner>() -> Self {
        Self {
            options: H::Job::OPTIONS,
            rust_type: type_name::<H::Job>,
            handler: TypeId::of::<H>,
            handler_name: type_name::<H>,
            state: H::STATE,
            run: run_in_batch,
            is_durable: false,
            batch: Some(batch::empty::<H>),
            #[cfg(feature = "testing")]
            forms: PayloadForms::of::<H::Job>,
        }
    }

    /// Returns the options that `#[job(..)]` declares.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn is_built_in(&self) -> bool {
        self.options.name.starts_with(BUILT_IN_PREFIX)
    }

    /// Returns the full path of the payload's Rust type, for error messages.
    pub fn rust_type(&self) -> &'static str {
        (self.rust_type)()
    }

    /// Returns an empty batch, or `None` if the type has no batch handler.
    pub(crate) fn batch(&self) -> Option<Box<dyn AnyBatch>> {
        self.batch.map(|empty| empty())
    }

    /// Returns whether the type has a batch handler.
    #[doc(hidden)]
    pub fn takes_batches(&self) -> bool {
        self.batch.is_some()
    }

    /// Returns the required state types that `states` lacks, as pairs of job type name and state type name.
    pub(crate) fn missing_states(&self, states: &States) -> impl Iterator<Item = (&'static str, &'static str)> {
        let required = self.options.state.iter().chain(self.state);
        required.filter(|key| !states.has(**key)).map(|key| (self.options.name, key.name()))
    }

    /// Runs one attempt with `payload` as JSON text. If the payload does not fit the type, the job is retried, because another release
    /// may be able to decode the payload. Fails terminally for invalid JSON and for a type with a batch handler.
    pub(crate) fn run<'a>(&self, payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
        (self.run)(payload, cx)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.options.name).field("rust_type", &self.rust_type()).finish_non_exhaustive()
    }
}

fn run<'a, H: JobRunner>(payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    Box::pin(async move {
        let job: H::Job = decode_payload(payload, cx)?;
        if cx.check_start_deadline() {
            // This future never resolves. The attempt checks whether the start deadline was missed, and drops the future together with
            // the surrounding middleware.
            return pending().await;
        }
        let output = encode_output(&H::run_job(job, <H::Job as JobType>::Cx::of(cx)).await?).terminal()?;
        Ok((output != "null").then_some(output))
    })
}

/// Rejects a job that is run outside a batch. Batch handlers always run in batches, even for one job.
fn run_in_batch<'a>(_: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    Box::pin(async move { Err(Failure::terminal(format!("the handler of `{}` runs only batches", cx.job_type()))) })
}

/// Job types of one worker, accessible by name and alias.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    by_name: BTreeMap<&'static str, Registration>,
}

impl Registry {
    /// Creates an empty registry. Add types with [`Registry::register`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a registry of all job types linked into this binary, except built-in types.
    ///
    /// # Errors
    /// Returns [`RegistryError::Duplicate`] if two types share a name or an alias, [`RegistryError::TwoHandlers`] if a type has two
    /// handlers, and [`RegistryError::InvalidOption`] if an option is invalid. `#[job]` rejects most invalid options
    /// at compile time.
    pub fn linked() -> Result<Self, RegistryError> {
        let mut registry = Self::new();
        for registration in
            inventory::iter::<Registration>.into_iter().filter(|registration| !registration.is_built_in() || check(registration).is_err())
        {
            registry.add(registration)?;
        }
        Ok(registry)
    }

    /// Adds the built-in job types.
    ///
    /// # Errors
    /// Returns [`RegistryError::Duplicate`] if another type uses the name of a built-in type.
    #[doc(hidden)]
    pub fn with_ours(mut self) -> Result<Self, RegistryError> {
        for registration in inventory::iter::<Registration>.into_iter().filter(|registration| registration.is_built_in()) {
            self.add(registration)?;
        }
        Ok(self)
    }

    /// Adds the handler `H` with its job type. `H` is a type that implements `Handler`, or a function with `#[handler]`. Registering a
    /// handler again has no effect.
    ///
    /// # Errors
    /// Returns the same errors as [`Registry::linked`].
    pub fn register<H: JobRunner>(&mut self) -> Result<(), RegistryError> {
        self.add(&Registration::of::<H>())
    }

    /// Adds the batch handler `H` with its job type. Registering a handler again has no effect.
    ///
    /// # Errors
    /// Returns the errors of [`Registry::linked`].
    pub fn register_batch<H: BatchRunner>(&mut self) -> Result<(), RegistryError> {
        self.add(&Registration::of_batch::<H>())
    }

    /// Returns the type with the given name or alias, or `None` if there is no such type.
    pub fn get(&self, name: &str) -> Option<&Registration> {
        self.by_name.get(name)
    }

    /// Returns an iterator over names and aliases with their types, in the order of the names.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &Registration)> {
        self.by_name.iter().map(|(name, registration)| (*name, registration))
    }

    /// Returns an iterator over the types, in the order of the names.
    pub fn types(&self) -> impl Iterator<Item = &Registration> {
        self.by_name.iter().filter(|(name, registration)| **name == registration.options.name).map(|(_, registration)| registration)
    }

    /// Returns whether the registry is empty.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Removes the sealed types whose keyring this process lacks, and calls `on_removed` with each removed type and its keyring. Jobs of
    /// the removed types are left to other workers.
    ///
    /// # Errors
    /// Returns [`RegistryError::NoKeyring`] if all types were removed.
    #[doc(hidden)]
    pub fn served(mut self, mut on_removed: impl FnMut(&'static str, &'static str)) -> Result<Self, RegistryError> {
        let missing_keyring = |registration: &Registration| registration.options.seal.filter(|keyring| !seal::has_keyring(keyring));
        let removed: Vec<_> =
            self.types().filter_map(|registration| Some((registration.options.name, missing_keyring(registration)?))).collect();
        self.by_name.retain(|_, registration| missing_keyring(registration).is_none());
        match removed.first() {
            Some((job_type, keyring)) if self.is_empty() => Err(RegistryError::NoKeyring { job_type, keyring }),
            _ => {
                for (job_type, keyring) in removed {
                    on_removed(job_type, keyring);
                }
                Ok(self)
            }
        }
    }

    /// Checks that a worker with these `states` can run every type.
    ///
    /// # Errors
    /// Returns [`RegistryError::Empty`] if no type is registered, and [`RegistryError::MissingState`] with all missing state types.
    #[doc(hidden)]
    pub fn check(&self, states: &States) -> Result<(), RegistryError> {
        if self.is_empty() {
            return Err(RegistryError::Empty);
        }
        let missing: Vec<(&str, &str)> = self.types().flat_map(|registration| registration.missing_states(states)).collect();
        if missing.is_empty() { Ok(()) } else { Err(RegistryError::missing_state(&missing)) }
    }

    fn add(&mut self, registration: &Registration) -> Result<(), RegistryError> {
        check(registration)?;
        let options = registration.options;
        for name in std::iter::once(options.name).chain(options.aliases.iter().copied()) {
            match self.by_name.get(name) {
                Some(other) if other.rust_type() != registration.rust_type() => {
                    return Err(RegistryError::Duplicate { name, first: other.rust_type(), second: registration.rust_type() });
                }
                Some(other) if (other.handler)() != (registration.handler)() => {
                    let (first, second) = ((other.handler_name)(), (registration.handler_name)());
                    return Err(RegistryError::TwoHandlers { job_type: name, first, second });
                }
                _ => self.by_name.insert(name, *registration),
            };
        }
        Ok(())
    }
}

/// Maximum duration of the options `retain` and `expires`.
const MAX_RETENTION: std::time::Duration = std::time::Duration::from_hours(100 * 365 * 24);

fn check(registration: &Registration) -> Result<(), RegistryError> {
    let options = &registration.options;
    let invalid = |what: String| RegistryError::InvalidOption { rust_type: registration.rust_type(), what };
    for name in std::iter::once(&options.name).chain(options.aliases).chain([&options.queue]) {
        check_name("name", name).map_err(|error| invalid(error.to_string()))?;
    }
    if registration.is_built_in() && !registration.rust_type().starts_with("queue_core::") {
        return Err(invalid(format!("names with the prefix `{BUILT_IN_PREFIX}` are reserved")));
    }
    if options.retain.history().is_some_and(|history| history.is_zero() || history > MAX_RETENTION) {
        return Err(invalid("retain must be longer than zero and at most 100 years".to_owned()));
    }
    if options.expires.is_some_and(|time| time.as_micros() == 0 || time > MAX_RETENTION) {
        return Err(invalid("expires must be longer than zero and at most 100 years".to_owned()));
    }
    for limit in options.limits {
        limit.name.map_or(Ok(()), |name| check_name("limit name", name)).map_err(|error| invalid(error.to_string()))?;
        limit.fault().map_or(Ok(()), |fault| Err(invalid(fault)))?;
    }
    if !(1..=MAX_VERSION).contains(&options.version) {
        return Err(invalid(format!("version is {}, but must be 1 to {MAX_VERSION}", options.version)));
    }
    if options.max_attempts < 1 {
        return Err(invalid(format!("max_attempts is {}, but must be at least 1", options.max_attempts)));
    }
    if let Some(keyring) = options.seal {
        check_name("name of a keyring", keyring).map_err(|error| invalid(error.to_string()))?;
    }
    if options.keep_logs.is_some_and(|bytes| !(1..=Options::MAX_LOG_BYTES).contains(&bytes) || options.batch.is_some()) {
        return Err(invalid("keep_logs must be 1 byte to 1 MiB, and cannot be combined with batch".to_owned()));
    }
    if options.durable != registration.is_durable || options.durable && options.transactional {
        return Err(invalid(
            "`durable` requires a handler that takes a `Durable`, and cannot be combined with transactional or batch".to_owned(),
        ));
    }
    check_batch(registration).map_err(invalid)
}

/// Checks that the batch options are in range, match the kind of handler, and are compatible with the other options.
fn check_batch(registration: &Registration) -> Result<(), String> {
    let Options { batch, batch_wait, transactional, max_attempts, .. } = registration.options;
    if batch.is_some() != registration.takes_batches() {
        return Err("`batch` requires a `BatchHandler`, and a `BatchHandler` requires `batch`".to_owned());
    }
    let Some(max_jobs) = batch else { return Ok(()) };
    if !(2..=Options::MAX_BATCH).contains(&max_jobs) || batch_wait > Options::MAX_BATCH_WAIT {
        return Err("batch must be 2 to 10000, and batch_wait at most a minute".to_owned());
    }
    if transactional || max_attempts < 2 {
        return Err("batch cannot be combined with transactional or max_attempts = 1, because the last attempt runs alone".to_owned());
    }
    Ok(())
}
