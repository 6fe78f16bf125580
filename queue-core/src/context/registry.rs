//! Which job types this binary can run.
//!
//! `#[job]` submits a [`Registration`] at link time; [`Registry::linked`] collects them. It sees only crates that the binary names: a
//! dependency that is never mentioned is not linked, which is why an empty registry is an error that says so.

use std::{
    any::type_name,
    collections::BTreeMap,
    fmt,
    future::{Future, pending},
    pin::Pin,
};

#[cfg(feature = "testing")]
use super::forms::PayloadForms;
pub use super::registry_error::RegistryError;
use super::{
    Durable, Handler, HandlerContext as _, States,
    batch::{self, AnyBatch, BatchHandler},
    decode::read,
};
use crate::{
    define::{Failure, NEWEST, Options, TerminalExt as _},
    payload::encode_output,
    schema::check_name,
    seal,
};

/// One job type with its handler, the types erased.
#[derive(Clone, Copy)]
pub struct Registration {
    options: Options,
    rust_type: fn() -> &'static str,
    run: Run,
    is_durable: bool,
    /// Makes an empty batch, if the handler takes batches.
    batch: Option<fn() -> Box<dyn AnyBatch>>,
    #[cfg(feature = "testing")]
    pub(crate) forms: fn() -> PayloadForms,
}

/// Decodes a payload and runs its handler; the output comes back as JSON text, `None` for `()`.
type Run = for<'a> fn(&'a str, &'a Durable) -> HandlerFuture<'a>;

/// A handler at work.
pub type HandlerFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Failure>> + Send + 'a>>;

inventory::collect!(Registration);

/// Types of ours have names that begin so. Every worker runs them, whatever types it is told.
const OURS: &str = "queue:";

impl Registration {
    /// The registration of `T`.
    pub const fn of<T: Handler>() -> Self {
        Self {
            options: T::OPTIONS,
            rust_type: type_name::<T>,
            run: run::<T>,
            is_durable: T::Cx::IS_DURABLE,
            batch: None,
            #[cfg(feature = "testing")]
            forms: PayloadForms::of::<T>,
        }
    }

    /// The registration of `T`, whose handler takes batches.
    pub const fn of_batch<T: BatchHandler>() -> Self {
        Self {
            options: T::OPTIONS,
            rust_type: type_name::<T>,
            run: run_in_batch,
            is_durable: false,
            batch: Some(batch::empty::<T>),
            #[cfg(feature = "testing")]
            forms: PayloadForms::of::<T>,
        }
    }

    /// What `#[job(..)]` said.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn is_ours(&self) -> bool {
        self.options.name.starts_with(OURS)
    }

    /// The Rust type, with its path.
    pub fn rust_type(&self) -> &'static str {
        (self.rust_type)()
    }

    /// An empty batch, if the handler takes batches.
    pub(crate) fn batch(&self) -> Option<Box<dyn AnyBatch>> {
        self.batch.map(|empty| empty())
    }

    /// Whether the handler takes batches.
    #[doc(hidden)]
    pub fn takes_batches(&self) -> bool {
        self.batch.is_some()
    }

    /// Runs one attempt on the payload's JSON text. A payload that does not fit the type is a failure to be tried again,
    /// for another release may read it; one that no JSON reader takes is a terminal failure. So is any of a type whose handler takes batches.
    pub(crate) fn run<'a>(&self, payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
        (self.run)(payload, cx)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.options.name).field("rust_type", &self.rust_type()).finish_non_exhaustive()
    }
}

fn run<'a, T: Handler>(payload: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    Box::pin(async move {
        let job: T = read(payload, cx)?;
        if cx.comes_too_late() {
            // Whoever runs the attempt sees that, and drops this with the middleware around it.
            return pending().await;
        }
        let output = encode_output(&job.run(T::Cx::of(cx)).await?).terminal()?;
        Ok((output != "null").then_some(output))
    })
}

/// Attempts of such a type are begun in batches, be they of one.
fn run_in_batch<'a>(_: &'a str, cx: &'a Durable) -> HandlerFuture<'a> {
    Box::pin(async move { Err(Failure::terminal(format!("the handler of `{}` takes batches only", cx.job_type()))) })
}

/// The job types of one worker, by every name they go under.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    by_name: BTreeMap<&'static str, Registration>,
}

impl Registry {
    /// An empty registry, to be filled with [`Registry::register`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Every type linked into this binary.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`] when two types share a name or an alias; [`RegistryError::InvalidOption`] when a hand-written
    /// `Job` carries an option out of range.
    pub fn linked() -> Result<Self, RegistryError> {
        let mut registry = Self::new();
        for registration in inventory::iter::<Registration>.into_iter().filter(|one| !one.is_ours() || check(one).is_err()) {
            registry.add(registration)?;
        }
        Ok(registry)
    }

    /// With the types of ours.
    ///
    /// # Errors
    /// [`RegistryError::Duplicate`] when another type has the name of one.
    #[doc(hidden)]
    pub fn with_ours(mut self) -> Result<Self, RegistryError> {
        for registration in inventory::iter::<Registration>.into_iter().filter(|registration| registration.is_ours()) {
            self.add(registration)?;
        }
        Ok(self)
    }

    /// Adds `T`; registering the same type twice is fine.
    ///
    /// # Errors
    /// As [`Registry::linked`].
    pub fn register<T: Handler>(&mut self) -> Result<(), RegistryError> {
        self.add(&Registration::of::<T>())
    }

    /// Adds `T`, whose handler takes batches; registering the same type twice is fine.
    ///
    /// # Errors
    /// As [`Registry::linked`].
    pub fn register_batch<T: BatchHandler>(&mut self) -> Result<(), RegistryError> {
        self.add(&Registration::of_batch::<T>())
    }

    /// The type stored under `name`, be it an alias.
    pub fn get(&self, name: &str) -> Option<&Registration> {
        self.by_name.get(name)
    }

    /// Each name and alias with its type, in order of name.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &Registration)> {
        self.by_name.iter().map(|(name, registration)| (*name, registration))
    }

    /// Each type once, in order of name.
    pub fn types(&self) -> impl Iterator<Item = &Registration> {
        self.by_name.iter().filter(|(name, registration)| **name == registration.options.name).map(|(_, registration)| registration)
    }

    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Without the types whose payloads this process cannot open, of each of which `left` is told, with its keyring: they are for others.
    ///
    /// # Errors
    /// [`RegistryError::NoKeyring`] if none remains of those there were.
    #[doc(hidden)]
    pub fn served(mut self, mut left: impl FnMut(&'static str, &'static str)) -> Result<Self, RegistryError> {
        let lacks = |registration: &Registration| registration.options.seal.filter(|keyring| !seal::is_known(keyring));
        let lacking: Vec<_> = self.types().filter_map(|known| Some((known.options.name, lacks(known)?))).collect();
        self.by_name.retain(|_, known| lacks(known).is_none());
        match lacking.first() {
            Some((job_type, keyring)) if self.is_empty() => Err(RegistryError::NoKeyring { job_type, keyring }),
            _ => {
                for (job_type, keyring) in lacking {
                    left(job_type, keyring);
                }
                Ok(self)
            }
        }
    }

    /// Checks that a worker with these `states` can run every type.
    ///
    /// # Errors
    /// [`RegistryError::Empty`], or [`RegistryError::MissingState`] with all that is missing.
    #[doc(hidden)]
    pub fn check(&self, states: &States) -> Result<(), RegistryError> {
        if self.is_empty() {
            return Err(RegistryError::Empty);
        }
        let mut missing: Vec<(&str, &str)> = Vec::new();
        for registration in self.types() {
            let keys = registration.options.state.iter().filter(|key| !states.has(**key));
            missing.extend(keys.map(|key| (registration.options.name, key.name())));
        }
        if missing.is_empty() { Ok(()) } else { Err(RegistryError::missing_state(&missing)) }
    }

    fn add(&mut self, registration: &Registration) -> Result<(), RegistryError> {
        check(registration)?;
        let options = registration.options;
        for name in std::iter::once(options.name).chain(options.aliases.iter().copied()) {
            match self.by_name.insert(name, *registration) {
                Some(other) if other.rust_type() != registration.rust_type() => {
                    return Err(RegistryError::Duplicate { name, first: other.rust_type(), second: registration.rust_type() });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// No history is kept longer by its type, and no job may wait longer for its beginning.
const LONGEST_HISTORY: std::time::Duration = std::time::Duration::from_hours(100 * 365 * 24);

fn check(registration: &Registration) -> Result<(), RegistryError> {
    let options = &registration.options;
    let invalid = |what: String| RegistryError::InvalidOption { rust_type: registration.rust_type(), what };
    for name in std::iter::once(&options.name).chain(options.aliases).chain([&options.queue]) {
        check_name("name", name).map_err(|error| invalid(error.to_string()))?;
    }
    if registration.is_ours() && !registration.rust_type().starts_with("queue_core::") {
        return Err(invalid(format!("names that begin with `{OURS}` are ours")));
    }
    if options.retain.history().is_some_and(|history| history.is_zero() || history > LONGEST_HISTORY) {
        return Err(invalid("retain must be longer than zero and at most 100 years".to_owned()));
    }
    if options.expires.is_some_and(|time| time.as_micros() == 0 || time > LONGEST_HISTORY) {
        return Err(invalid("expires must be longer than zero and at most 100 years".to_owned()));
    }
    for limit in options.limits {
        limit.name.map_or(Ok(()), |name| check_name("limit name", name)).map_err(|error| invalid(error.to_string()))?;
        limit.fault().map_or(Ok(()), |fault| Err(invalid(fault)))?;
    }
    if !(1..=NEWEST).contains(&options.version) {
        return Err(invalid(format!("version is {}, and it is from 1 to {NEWEST}", options.version)));
    }
    if options.max_attempts < 1 {
        return Err(invalid(format!("max_attempts is {}, and a job needs at least one", options.max_attempts)));
    }
    if let Some(keyring) = options.seal {
        check_name("name of a keyring", keyring).map_err(|error| invalid(error.to_string()))?;
    }
    if options.keep_logs.is_some_and(|bytes| !(1..=Options::LARGEST_LOG).contains(&bytes) || options.batch.is_some()) {
        return Err(invalid("keep_logs must be 1 byte to 1 MiB, and does not go with batch".to_owned()));
    }
    if options.durable != registration.is_durable || options.durable && options.transactional {
        return Err(invalid("`durable` goes with a handler that takes a `Durable`, and not with transactional, nor with batch".to_owned()));
    }
    check_batch(registration).map_err(invalid)
}

/// The option and the handler belong together.
fn check_batch(registration: &Registration) -> Result<(), String> {
    let Options { batch, batch_wait, transactional, max_attempts, .. } = registration.options;
    if batch.is_some() != registration.takes_batches() {
        return Err("`batch` goes with a `BatchHandler`, and a `BatchHandler` with `batch`".to_owned());
    }
    let Some(most) = batch else { return Ok(()) };
    if !(2..=Options::LARGEST_BATCH).contains(&most) || batch_wait > Options::LONGEST_BATCH_WAIT {
        return Err("batch must be 2 to 10000, and batch_wait at most a minute".to_owned());
    }
    if transactional || max_attempts < 2 {
        return Err("batch does not go with transactional, nor with max_attempts = 1, for the last attempt runs alone".to_owned());
    }
    Ok(())
}
