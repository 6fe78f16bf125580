//! What the handler of a durable job is given: steps that are done once, and waits that hold no slot.
//!
//! An attempt that waits is left by dropping its future, and its job comes back when the wait is over; the handler then runs from its beginning,
//! and what is journaled is not done again. What is known of the journal is kept in `journal`.

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
    backend::OwnTransaction,
    journal::{Done, END, JOIN, Journal, Stop, UNSURE},
    since::LastJournaled,
};
use crate::{
    define::{Failure, JobResult, LONGEST_WAIT, TerminalExt as _},
    error::Error,
    payload,
};

/// The longest name of a step, in bytes.
pub(super) const LONGEST_NAME: usize = 200;

/// One attempt of a durable job, as its handler sees it: a [`Context`] with a journal. A type is durable by `#[job(durable)]`.
///
/// The handler may end half-way, by a failure, a crash, a deploy, or because it sleeps; the next attempt runs it from its beginning, and each
/// [`step`](Self::step) that was done gives what it gave then, without being done again. Between steps there are no rules: the order of steps may
/// change, they may run at once (`join!`), and a release may add and remove some. A name says which step it is, so it is used once an attempt.
///
/// A failed attempt is tried again as ever, and `max_attempts` counts from the last step that was journaled, so that a job that goes forward is not
/// given up.
///
/// ```
/// use queue_core::{Durable, Handler, JobResult, job};
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
///         let receipt: String = cx.step("charge", charge(self.user, cx.key("charge"))).await?; // done once it is journaled
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

/// The name of a step: a text, or a text and what tells it from others of that name: `("resize", 7)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    pub(crate) name: String,
    /// So many bytes of it are the text.
    text: usize,
}

impl StepName {
    /// Without what tells it from others of that name: of a signal, what its sender calls it.
    pub(super) fn text(&self) -> &str {
        &self.name[..self.text]
    }
}

impl From<&str> for StepName {
    fn from(name: &str) -> Self {
        Self { text: name.len(), name: name.to_owned() }
    }
}

impl From<String> for StepName {
    fn from(name: String) -> Self {
        Self { text: name.len(), name }
    }
}

impl<N: fmt::Display> From<(&str, N)> for StepName {
    fn from((name, which): (&str, N)) -> Self {
        Self { text: name.len(), name: format!("{name}/{which}") }
    }
}

impl Durable {
    pub(crate) fn around(cx: Context) -> Self {
        Self { cx, journal: OnceLock::new() }
    }

    /// Does this work once: its output is journaled, and a later attempt is given that, while the work is dropped without having been polled.
    ///
    /// The output is committed when this returns. Should the process end between the work's effect and that commit, the work is done again: give
    /// effects elsewhere the idempotency key that [`key`](Self::key) makes, and effects in the same database to [`step_tx`](Self::step_tx).
    ///
    /// # Errors
    /// Those of the work: it is not journaled then, and is done again by the next attempt. Terminal: a name that this attempt has asked for already,
    /// an output of more than 256 KiB or that jsonb would not give back, and the 10,001st step. [`Error::Step`] for an output that does not fit
    /// `T` any more, [`Error::LeaseLost`] when others have the job, [`Error::NotWritten`].
    pub async fn step<T, E>(&self, name: impl Into<StepName>, work: impl Future<Output = Result<T, E>>) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
    {
        let (journal, name, since) = (self.journal(), checked(self, name)?, Instant::now());
        if let Some(done) = journal.ask(&name)? {
            return Ok(decode(journal, &name, done)?);
        }
        let _under_way = journal.begin();
        let (output, text) = encode(journal, &name, &work.await.map_err(Into::into)?)?;
        journal.write(journal.entry(&name, text, since, None)?).await?;
        Ok(output)
    }

    /// As [`step`](Self::step), in a transaction on the worker's pool: what is written and enqueued on it is committed together with the journal, so it
    /// happens exactly once.
    ///
    /// Do not end the transaction in SQL. The same work is not done beside another: it takes one of the pool's connections until it ends.
    ///
    /// # Errors
    /// As [`step`](Self::step); what was written is rolled back. A connection that is lost in the commit is no error by itself: what it came to is
    /// looked up.
    pub async fn step_tx<T, E, W>(&self, name: impl Into<StepName>, work: W) -> JobResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Failure>,
        W: AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
    {
        let (journal, name, since) = (self.journal(), checked(self, name)?, Instant::now());
        if let Some(done) = journal.ask(&name)? {
            return Ok(decode(journal, &name, done)?);
        }
        let _under_way = journal.begin();
        let (shared, job) = (Arc::clone(journal.shared()), self.id());
        let backend = Arc::clone(&shared.backend);
        // In a task of its own, which is never dropped half-way: that would leave the pool a connection in the middle of a transaction.
        let mut tx = shared.handlers.spawn(async move { backend.begin(job).await }).await??;
        let (output, text) = encode(journal, &name, &work(connection(&mut tx)).await.map_err(Into::into)?)?;
        journal.commit(tx, journal.entry(&name, text, since, None)?).await?;
        Ok(output)
    }

    /// Waits for so long, counted from when the job first came here, by the database's clock; across attempts, crashes and deploys. Meanwhile the job
    /// is scheduled, and holds no slot, no lease and no connection. A sleep that is over within a second is waited for in place. One of more than 100
    /// years is a terminal failure.
    ///
    /// An attempt that waits is left once no step of it is under way and its handler has not moved for a tenth of a second: a future that is no step
    /// is dropped with it. So is what stands around the handler, as middleware. In a `select!` with a step, put the step first and say `biased;`: a
    /// later attempt finds both ready.
    pub async fn sleep(&self, name: impl Into<StepName>, wait: Duration) {
        let journal = self.journal();
        match self.sleep_until(journal, name.into(), wait).await {
            Ok(until) => journal.wait(until).await,
            Err(failure) => {
                journal.break_off(failure);
                // The attempt ends here.
                pending::<()>().await;
            }
        }
    }

    async fn sleep_until(&self, journal: &Arc<Journal>, name: StepName, wait: Duration) -> Result<Instant, Failure> {
        let name = checked(self, name)?;
        match journal.ask(&name)? {
            Some(Done::Sleep(until)) => return Ok(until),
            Some(Done::Step(_)) => {
                return Err(journal.wrong(&name, "it is journaled as a step, and this is a sleep; give it another name").into());
            }
            None => {}
        }
        if wait > LONGEST_WAIT {
            return Err(Failure::terminal(journal.wrong(&name, "no sleep is longer than 100 years")));
        }
        let _under_way = journal.begin();
        journal.write(journal.entry(&name, None, Instant::now(), Some(wait))?).await?;
        Ok(Instant::now() + wait)
    }

    /// An idempotency key for an effect elsewhere: the same in each attempt of this job, and in no other job of this store.
    ///
    /// ```
    /// # use queue_core::Durable;
    /// # async fn pay(key: &str) -> Result<String, std::io::Error> { Ok(key.to_owned()) }
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// let key = cx.key("charge"); // for the header `Idempotency-Key`, say
    /// let receipt: String = cx.step("charge", pay(&key)).await?;
    /// # Ok(()) }
    /// ```
    pub fn key(&self, name: impl Into<StepName>) -> String {
        format!("{}-{}-{}", self.cx.shared().store.schema(), self.cx.id(), name.into().name)
    }

    /// Whether a step or a sleep of this name is journaled: for a release that has to know how far jobs of an older one came.
    pub fn journaled(&self, name: impl Into<StepName>) -> bool {
        self.journal().has(&name.into().name)
    }

    /// Reads what earlier attempts have journaled.
    pub(crate) async fn load(&self) -> Result<(), Error> {
        self.journal().load().await
    }

    /// Once the handler has ended: waits for steps that are on their way to the database.
    pub(crate) async fn flush(&self, patience: Duration) {
        if let Some(journal) = self.journal.get() {
            journal.flush(patience).await;
        }
    }

    /// How long the job is to be put off instead of being parked, if its journal is not known.
    pub(crate) fn unsure(&self) -> Option<Duration> {
        self.journal.get().is_some_and(|journal| journal.is_unsure()).then_some(UNSURE)
    }

    /// Whether the attempt is to be left; asked whenever its handler has nothing to do.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.journal.get()?.stop()
    }

    pub(super) fn journal(&self) -> &Arc<Journal> {
        self.journal.get_or_init(|| {
            let last = self.cx.journaled.get_or_init(LastJournaled::default).clone();
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

pub(crate) fn connection(tx: &mut OwnTransaction) -> &mut PgConnection {
    match tx {
        OwnTransaction::Pooled(tx) => tx,
        OwnTransaction::Lent(tx) => tx,
    }
}

pub(super) fn checked(cx: &Durable, name: impl Into<StepName>) -> Result<String, Failure> {
    let StepName { name, .. } = name.into();
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(Failure::terminal(cx.journal().wrong(&name, "a name has 1 to 200 bytes, and no control characters")));
    }
    if name.ends_with(END) || name.ends_with(JOIN) {
        return Err(Failure::terminal(cx.journal().wrong(&name, "names that end so are those of the ends of waits")));
    }
    Ok(name)
}

/// What a step gives: what is read back from what is stored, so that the first attempt is given no other than the next.
fn encode<T: Serialize + DeserializeOwned>(journal: &Journal, name: &str, output: &T) -> Result<(T, Option<String>), Failure> {
    let encoded = payload::encode(output, payload::DEFAULT_LIMIT);
    let text = encoded.map_err(|error| journal.wrong(name, &format!("its output cannot be stored: {error}"))).terminal()?;
    let text = (text != "null").then_some(text);
    Ok((decode(journal, name, Done::Step(text.clone())).terminal()?, text))
}

/// What a step gave. What does not fit is tried again: another release may read it.
pub(super) fn decode<T: DeserializeOwned>(journal: &Journal, name: &str, done: Done) -> Result<T, Error> {
    let Done::Step(output) = done else {
        return Err(journal.wrong(name, "it is journaled as a sleep, and this is another step; give it another name"));
    };
    serde_json::from_str(output.as_deref().unwrap_or("null")).map_err(|error| {
        let (rust_type, column) = (type_name::<T>(), error.column());
        journal.wrong(name, &format!("what it gave does not fit the type `{rust_type}` (column {column}); give the step another name"))
    })
}

/// What a plain job's handler asks for in vain.
impl Context {
    /// Is not there: only durable jobs have steps.
    #[doc(hidden)]
    pub fn step<N, W>(&self, _: N, _: W) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Is not there: only durable jobs have steps.
    #[doc(hidden)]
    pub fn step_tx<N, W>(&self, _: N, _: W) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Is not there: only durable jobs have children.
    #[doc(hidden)]
    pub fn spawn<N, J>(&self, _: N, _: J) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Is not there: only durable jobs have children.
    #[doc(hidden)]
    pub fn map<N, I>(&self, _: N, _: I) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Is not there: only durable jobs receive signals.
    #[doc(hidden)]
    pub fn receive<T>(&self, _: T) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }

    /// Is not there: only durable jobs sleep.
    #[doc(hidden)]
    pub fn sleep<N>(&self, _: N, _: Duration) -> std::future::Pending<()>
    where
        for<'a> &'a Self: ByDurable,
    {
        pending()
    }
}

/// What has it can be called; nothing has.
#[diagnostic::on_unimplemented(
    message = "only durable jobs have steps, sleeps, signals and children",
    label = "this job is not durable",
    note = "say `#[job(durable)]` of its type, and `cx: &Durable` in its handler",
    note = "a plain job that is to be called again later returns `Err(Failure::snooze(wait))`"
)]
pub trait ByDurable {}
