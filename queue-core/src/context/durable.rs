//! Context of durable jobs: steps that run once, and waits that hold no slot.
//!
//! An attempt that waits is suspended by dropping its future, and the job is claimed again when the wait ends. The handler then runs from
//! the beginning, and journaled steps are not run again. The `journal` module tracks the state of the journal.

use std::{
    any::type_name,
    fmt,
    future::pending,
    ops::{AsyncFnOnce, Deref},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};
use sqlx::PgConnection;

use super::{
    Context,
    backend::OwnedTransaction,
    journal::{EarlyExit, JOIN_SUFFIX, Journal, StepResult, TIMEOUT_SUFFIX, UNCERTAIN_RETRY_DELAY},
    last_journaled::LastJournaled,
};
use crate::{
    define::{Failure, JobResult, MAX_WAIT, TerminalExt as _},
    error::Error,
    payload,
};

/// Maximum length of a step name in bytes.
pub(super) const MAX_NAME_BYTES: usize = 200;

/// Context of one attempt of a durable job: a [`Context`] with a journal. `#[job(durable)]` makes a type durable.
///
/// A failure, a crash, a deploy or a sleep can end the handler early. The next attempt runs the handler from the beginning, and each
/// journaled [`step`](Self::step) returns its stored output without running again. The code between steps need not be deterministic.
/// Steps can run concurrently (`join!`), and a release can reorder, add and remove steps. The name identifies a step, so an attempt may
/// use each name only once.
///
/// Failed attempts are retried as usual. `max_attempts` counts from the last journaled step, so a job that makes progress does not become a
/// dead letter.
///
/// ```
/// use queue_core::{Handler, JobResult, durable::Durable, job};
/// use serde::{Deserialize, Serialize};
/// use std::time::Duration;
///
/// #[job(durable)]
/// #[derive(Serialize, Deserialize)]
/// struct Onboard {
///     user: i64,
/// }
///
/// # async fn charge(user: i64, key: String) -> Result<String, std::io::Error> { Ok(key) }
/// impl Handler for Onboard {
///     async fn run(self, cx: &Durable) -> JobResult {
///         let receipt: String = cx.step("charge", charge(self.user, cx.key("charge"))).await?; // runs once
///         cx.sleep("trial", Duration::from_hours(14 * 24)).await; // holds no slot
///         cx.step_tx("book", async |tx| {
///             sqlx::query("insert into bookings (receipt) values ($1)").bind(&receipt).execute(&mut *tx).await
///                 .map(|done| done.rows_affected())
///         }).await?; // exactly once
///         Ok(())
///     }
/// }
/// ```
pub struct Durable {
    cx: Context,
    journal: OnceLock<Arc<Journal>>,
}

/// Name of a step: a string, optionally with a suffix that makes the name unique, as in `("resize", 7)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    pub(crate) name: String,
    /// Length of the name without the suffix, in bytes.
    text_bytes: usize,
}

impl StepName {
    /// Returns the name without its suffix. For a received signal, this is the name of the signal.
    pub(super) fn text(&self) -> &str {
        &self.name[..self.text_bytes]
    }
}

impl From<&str> for StepName {
    fn from(name: &str) -> Self {
        Self { text_bytes: name.len(), name: name.to_owned() }
    }
}

impl From<String> for StepName {
    fn from(name: String) -> Self {
        Self { text_bytes: name.len(), name }
    }
}

impl<N: fmt::Display> From<(&str, N)> for StepName {
    fn from((name, suffix): (&str, N)) -> Self {
        Self { text_bytes: name.len(), name: format!("{name}/{suffix}") }
    }
}

impl Durable {
    pub(crate) fn new(cx: Context) -> Self {
        Self { cx, journal: OnceLock::new() }
    }

    /// Runs `work` once and journals its output. Later attempts return the journaled output and drop `work` without polling it.
    ///
    /// The output is committed before `step` returns. If the process ends after the work has taken effect but before the commit, the work
    /// runs again. For effects in other systems, use the idempotency key from [`key`](Self::key). For effects in the same database, use
    /// [`step_tx`](Self::step_tx).
    ///
    /// # Errors
    /// Returns the error of `work`. The step is then not journaled, and the next attempt runs `work` again. The failure is terminal if
    /// this attempt has already used the name, if the output exceeds 256 KiB or cannot be represented exactly in jsonb, or if the job
    /// already has 10,000 steps or 16 MiB of outputs. Returns [`Error::Step`] if the journaled output does not deserialize as `T`,
    /// [`Error::LeaseLost`] if this attempt has lost the job's lease, and [`Error::NotWritten`] if the step could not be written.
    pub async fn step<T, E>(&self, name: impl Into<StepName>, work: impl Future<Output = Result<T, E>>) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        let (journal, name, since) = (self.journal(), checked_name(self, name)?, Instant::now());
        if let Some(result) = journal.look_up(&name)? {
            return Ok(decode(journal, &name, result)?);
        }
        let _in_flight = journal.begin_step();
        let (output, text) = encode(journal, &name, &work.await.map_err(Into::into)?)?;
        journal.write(journal.entry(&name, text, since, None)?).await?;
        Ok(output)
    }

    /// Runs a [`step`](Self::step) in a transaction on the worker's pool. Writes and enqueues in the transaction commit together with the
    /// journal entry, so they happen exactly once.
    ///
    /// Do not end the transaction in SQL. The transaction occupies one connection of the pool until it ends.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Self::step), after the writes are rolled back. Losing the connection during the commit is not an
    /// error by itself, because the worker looks up the result of the commit.
    pub async fn step_tx<T, E, W>(&self, name: impl Into<StepName>, work: W) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
        W: AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
    {
        let (journal, name, since) = (self.journal(), checked_name(self, name)?, Instant::now());
        if let Some(result) = journal.look_up(&name)? {
            return Ok(decode(journal, &name, result)?);
        }
        let _in_flight = journal.begin_step();
        let (shared, job) = (Arc::clone(journal.shared()), self.id());
        let backend = Arc::clone(&shared.backend);
        // The transaction begins in a separate task that is never cancelled. If the task were cancelled, its connection would return to
        // the pool with an open transaction.
        let mut tx = shared.handlers.spawn(async move { backend.begin(job).await }).await??;
        let (output, text) = encode(journal, &name, &work(connection(&mut tx)).await.map_err(Into::into)?)?;
        journal.commit(tx, journal.entry(&name, text, since, None)?).await?;
        Ok(output)
    }

    /// Sleeps for `wait`, measured by the database's clock from the first time the job reached this point. The sleep continues across
    /// attempts, crashes and deploys. During the sleep, the job is scheduled and holds no slot, no lease and no connection. The attempt
    /// is not suspended if at most one second of the sleep is left. A sleep of more than 100 years is a terminal failure.
    ///
    /// A sleeping attempt is suspended once no step is running and the handler has been idle for 100 ms, but at the latest after 5 s
    /// without a running step. Futures that are not steps are dropped with the handler, and so is middleware. In a `select!` of a sleep
    /// and a step, put the step first and use `biased;`, because both branches are ready in a later attempt.
    pub async fn sleep(&self, name: impl Into<StepName>, wait: Duration) {
        let journal = self.journal();
        match self.sleep_until(journal, name.into(), wait).await {
            Ok(until) => journal.wait_until(until).await,
            Err(failure) => {
                journal.abort(failure);
                // This future never resolves. The worker ends the attempt after this poll and drops the future.
                pending::<()>().await;
            }
        }
    }

    async fn sleep_until(&self, journal: &Arc<Journal>, name: StepName, wait: Duration) -> Result<Instant, Failure> {
        let name = checked_name(self, name)?;
        match journal.look_up(&name)? {
            Some(StepResult::Sleep(until)) => return Ok(until),
            Some(StepResult::Step(_)) => {
                return Err(journal.step_error(&name, "it is journaled as a step, not as a sleep; use another name").into());
            }
            None => {}
        }
        if wait > MAX_WAIT {
            return Err(Failure::terminal(journal.step_error(&name, "a sleep is limited to 100 years")));
        }
        let _in_flight = journal.begin_step();
        journal.write(journal.entry(&name, None, Instant::now(), Some(wait))?).await?;
        Ok(Instant::now() + wait)
    }

    /// Returns an idempotency key for an effect in another system. The key is the same in all attempts of this job, and unique within the
    /// store.
    ///
    /// ```
    /// # use queue_core::durable::Durable;
    /// # async fn pay(key: &str) -> Result<String, std::io::Error> { Ok(key.to_owned()) }
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// let key = cx.key("charge"); // for example for the header `Idempotency-Key`
    /// let receipt: String = cx.step("charge", pay(&key)).await?;
    /// # Ok(()) }
    /// ```
    pub fn key(&self, name: impl Into<StepName>) -> String {
        format!("{}-{}-{}", self.cx.shared().store.schema(), self.cx.id(), name.into().name)
    }

    /// Returns whether a step or a sleep with this name is journaled. A new release can use this method to detect how far a job has
    /// progressed under an older release.
    pub fn journaled(&self, name: impl Into<StepName>) -> bool {
        self.journal().has(&name.into().name)
    }

    /// Loads the steps journaled by earlier attempts.
    pub(crate) async fn load(&self) -> Result<(), Error> {
        self.journal().load().await
    }

    /// Waits until no step write is in progress, or until `timeout` elapses. Called after the handler has ended.
    pub(crate) async fn flush(&self, timeout: Duration) {
        if let Some(journal) = self.journal.get() {
            journal.flush(timeout).await;
        }
    }

    /// Returns the retry delay of a job that must not be parked, because its in-memory journal may lack a journaled step. Returns `None`
    /// if no step can be missing.
    pub(crate) fn uncertain_retry_delay(&self) -> Option<Duration> {
        self.journal.get().is_some_and(|journal| journal.is_uncertain()).then_some(UNCERTAIN_RETRY_DELAY)
    }

    /// Returns the early exit of the attempt, or `None` if the attempt must continue. Called after each poll of the handler.
    pub(crate) fn early_exit(&self) -> Option<EarlyExit> {
        self.journal.get()?.early_exit()
    }

    pub(super) fn journal(&self) -> &Arc<Journal> {
        self.journal.get_or_init(|| {
            let last = self.cx.last_journaled.get_or_init(LastJournaled::default).clone();
            Arc::new(Journal::new(self.cx.fence, Arc::clone(&self.cx.shared), last))
        })
    }
}

impl Deref for Durable {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.cx
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("id", &self.cx.id()).field("attempt", &self.cx.attempt).finish_non_exhaustive()
    }
}

pub(crate) fn connection(tx: &mut OwnedTransaction) -> &mut PgConnection {
    match tx {
        OwnedTransaction::Pooled(tx) => tx,
        OwnedTransaction::Lent(tx) => tx,
    }
}

pub(super) fn checked_name(cx: &Durable, name: impl Into<StepName>) -> Result<String, Failure> {
    let StepName { name, .. } = name.into();
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Failure::terminal(cx.journal().step_error(&name, "a name must have 1 to 200 bytes and no control characters")));
    }
    if name.ends_with(TIMEOUT_SUFFIX) || name.ends_with(JOIN_SUFFIX) {
        return Err(Failure::terminal(cx.journal().step_error(&name, "names with the suffix ` (timeout)` or ` (join)` are reserved")));
    }
    Ok(name)
}

/// Encodes the output of a step and decodes it again, so that the first attempt returns the same value as later attempts.
fn encode<T: Serialize + DeserializeOwned>(journal: &Journal, name: &str, output: &T) -> Result<(T, Option<String>), Failure> {
    let encoded = payload::encode(output, payload::DEFAULT_LIMIT);
    let text = encoded.map_err(|error| journal.step_error(name, &format!("the output cannot be stored: {error}"))).terminal()?;
    let text = (text != "null").then_some(text);
    Ok((decode(journal, name, StepResult::Step(text.clone())).terminal()?, text))
}

/// Decodes the output of a step. After a mismatch, the job is retried, because another release may be able to decode the output.
pub(super) fn decode<T: DeserializeOwned>(journal: &Journal, name: &str, result: StepResult) -> Result<T, Error> {
    let StepResult::Step(output) = result else {
        return Err(journal.step_error(name, "it is journaled as a sleep, not as a step; use another name"));
    };
    serde_json::from_str(output.as_deref().unwrap_or("null")).map_err(|error| {
        let (rust_type, column) = (type_name::<T>(), error.column());
        journal
            .step_error(name, &format!("the journaled output does not fit the type `{rust_type}` (column {column}); use another step name"))
    })
}

/// Methods whose use on a plain context is a compile error.
impl Context {
    /// Not available. Only durable jobs have steps.
    #[doc(hidden)]
    pub fn step<N, W>(&self, _: N, _: W) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Not available. Only durable jobs have steps.
    #[doc(hidden)]
    pub fn step_tx<N, W>(&self, _: N, _: W) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Not available. Only durable jobs have children.
    #[doc(hidden)]
    pub fn spawn<N, J>(&self, _: N, _: J) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Not available. Only durable jobs have children.
    #[doc(hidden)]
    pub fn map<N, I>(&self, _: N, _: I) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Not available. Only durable jobs receive signals.
    #[doc(hidden)]
    pub fn receive<T>(&self, _: T) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Not available. Only durable jobs sleep.
    #[doc(hidden)]
    pub fn sleep<N>(&self, _: N, _: Duration) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }
}

/// Trait that no type implements. Calling a method bounded by this trait is a compile error with the message below.
#[diagnostic::on_unimplemented(
    message = "only durable jobs have steps, sleeps, signals and children",
    label = "this job is not durable",
    note = "add `#[job(durable)]` to its type, and take `cx: &queue_core::durable::Durable` in its handler",
    note = "a plain job that should run again later returns `Err(Failure::snooze(wait))`"
)]
pub trait ByDurable {}
