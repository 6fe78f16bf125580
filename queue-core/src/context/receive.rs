//! What a durable job receives: signals, each journaled as a step, in the order in which they came.
//!
//! Whether a signal or the end of the wait came first is decided once, by the database, with the row of the journal. A handler that waits is left as
//! one that sleeps.

use std::{
    any::type_name,
    fmt,
    future::{IntoFuture, pending},
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use super::{
    durable::{Durable, LONGEST_NAME, StepName, checked, decode},
    journal::{Done, END, Journal, Wait},
};
use crate::{
    define::{Failure, LONGEST_WAIT},
    error::Error,
};

/// While an attempt goes on beside its wait, it looks for a signal: after this time first, then after twice as long, up to the longest.
const LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_mins(1);

/// Never sooner again than this.
const PAUSE: Duration = Duration::from_millis(100);

impl Durable {
    /// Waits for the next signal of this name, and gives its payload: the same in each attempt, for it is journaled as a step. Meanwhile the job is
    /// `parked`, and holds no slot, no lease and no connection. A signal that came before the job asked is there at once.
    ///
    /// Senders use [`JobRef::signal`](crate::JobRef::signal), or `queue.signal` in SQL. One name is received once an attempt; to receive more signals
    /// of it, say which: `("vote", i)` takes the next one called `vote`.
    ///
    /// The attempt is left as in a [`sleep`](Self::sleep). While a step goes on beside it, a signal is seen within seconds, later within a minute. A
    /// payload that does not fit `T` is an error of the attempt, as of a step; it stays received.
    ///
    /// ```
    /// # use queue_core::Durable;
    /// # use std::time::Duration;
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// let who: String = cx.receive("approved").await;
    /// let paid: Option<u64> = cx.receive("paid").timeout(Duration::from_hours(72)).await; // `None`: not within three days
    /// # Ok(()) }
    /// ```
    pub fn receive<T: DeserializeOwned>(&self, name: impl Into<StepName>) -> Receive<'_, T> {
        Receive { cx: self, name: name.into(), payload: PhantomData }
    }

    /// What came, or the end of the wait.
    async fn hear(&self, journal: &Arc<Journal>, name: &StepName, timeout: Option<Duration>) -> Result<Done, Failure> {
        let (signal, step) = (name.text(), checked(self, name.clone())?);
        if signal.is_empty() {
            return Err(Failure::terminal(journal.wrong(&step, "a signal has a name, before what tells its waits apart")));
        }
        let bound = format!("{step}{END}");
        checked_length(journal, &step, &bound)?;
        if let Some(done) = journal.ask(&step)? {
            return Ok(done);
        }
        let until = match timeout {
            Some(timeout) => Some(self.end(journal, &bound, timeout).await?),
            None => None,
        };
        let mut look = LOOK;
        loop {
            {
                let _under_way = journal.begin();
                let ask = journal.ask_for(&step, signal, until.is_some().then(|| bound.clone()));
                if let Some(done) = journal.receive(ask).await? {
                    return Ok(done);
                }
            }
            let _waiting = journal.waiting(Wait { until, signal: Some(signal.to_owned()) });
            let left = until.map_or(look, |until| until.saturating_duration_since(Instant::now()).min(look));
            tokio::time::sleep(left.max(PAUSE)).await;
            look = (2 * look).min(LONGEST_LOOK);
        }
    }

    /// When a wait is over, counted from when the job first came here.
    async fn end(&self, journal: &Arc<Journal>, bound: &str, timeout: Duration) -> Result<Instant, Failure> {
        if let Some(Done::Sleep(until)) = journal.ask(bound)? {
            return Ok(until);
        }
        if timeout > LONGEST_WAIT {
            return Err(Failure::terminal(journal.wrong(bound, "no wait is longer than 100 years")));
        }
        let _under_way = journal.begin();
        journal.write(journal.entry(bound, None, Instant::now(), Some(timeout))?).await?;
        Ok(Instant::now() + timeout)
    }

    /// What cannot be given ends the attempt.
    async fn or_break_off<T>(&self, result: Result<T, Failure>) -> T {
        match result {
            Ok(value) => value,
            Err(failure) => {
                self.journal().break_off(failure);
                pending().await
            }
        }
    }
}

/// What a signal says.
fn received<T: DeserializeOwned>(journal: &Journal, name: &str, done: Done) -> Result<T, Error> {
    decode(journal, name, done).map_err(|error| match error {
        Error::Step { why, .. } => journal.wrong(name, &format!("it is what a signal said, which stays received: {why}")),
        error => error,
    })
}

fn checked_length(journal: &Journal, step: &str, bound: &str) -> Result<(), Failure> {
    if bound.len() > LONGEST_NAME {
        return Err(Failure::terminal(journal.wrong(step, "the name of what is received has at most 190 bytes")));
    }
    Ok(())
}

/// A signal that a job is about to wait for; from [`Durable::receive`].
#[must_use = "nothing is received until this is awaited"]
pub struct Receive<'c, T> {
    cx: &'c Durable,
    name: StepName,
    payload: PhantomData<fn() -> T>,
}

impl<'c, T: DeserializeOwned + Send> Receive<'c, T> {
    /// Waits no longer than this, counted from when the job first came here, by the database's clock. A signal that came before the end is looked
    /// for is received, even if it is late; one that comes after that is kept for the next who asks for this name. A timeout of more than 100 years is a
    /// terminal failure.
    pub fn timeout(self, timeout: Duration) -> ReceiveWithin<'c, T> {
        ReceiveWithin { receive: self, timeout }
    }

    async fn wait(self) -> T {
        let (journal, Self { cx, name, .. }) = (self.cx.journal(), self);
        let heard = cx.hear(journal, &name, None).await.and_then(|done| match done {
            Done::Step(_) => Ok(received(journal, &name.name, done)?),
            Done::Sleep(_) => {
                let why = format!("its wait is journaled as over, so there is no `{}`; give it another name", type_name::<T>());
                Err(journal.wrong(&name.name, &why).into())
            }
        });
        cx.or_break_off(heard).await
    }
}

/// A signal that a job is about to wait for, for some time; from [`Receive::timeout`].
#[must_use = "nothing is received until this is awaited"]
pub struct ReceiveWithin<'c, T> {
    receive: Receive<'c, T>,
    timeout: Duration,
}

impl<T: DeserializeOwned + Send> ReceiveWithin<'_, T> {
    async fn wait(self) -> Option<T> {
        let Self { receive: Receive { cx, name, .. }, timeout } = self;
        let journal = cx.journal();
        let heard = cx.hear(journal, &name, Some(timeout)).await.and_then(|done| match done {
            Done::Step(_) => Ok(Some(received(journal, &name.name, done)?)),
            Done::Sleep(_) => Ok(None),
        });
        cx.or_break_off(heard).await
    }
}

impl<'c, T: DeserializeOwned + Send + 'c> IntoFuture for Receive<'c, T> {
    type Output = T;
    type IntoFuture = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

impl<'c, T: DeserializeOwned + Send + 'c> IntoFuture for ReceiveWithin<'c, T> {
    type Output = Option<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Option<T>> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

impl<T> fmt::Debug for Receive<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("name", &self.name.name).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ReceiveWithin<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveWithin").field("name", &self.receive.name.name).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
