//! Signals received by durable jobs. Each signal is journaled as a step, in the order of arrival.
//!
//! The database decides whether a wait ends with a signal or with a timeout, and writes the journal row accordingly. A waiting handler is
//! suspended like a sleeping handler.

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
    durable::{Durable, MAX_NAME_BYTES, StepName, checked_name, decode},
    journal::{Journal, StepResult, TIMEOUT_SUFFIX, Wait},
};
use crate::{
    define::{Failure, MAX_WAIT},
    error::Error,
};

/// Initial interval between polls for a signal while the attempt runs other steps. The interval doubles up to the maximum.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum interval between polls for a signal.
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// Minimum interval between polls for a signal. Prevents a busy loop once the deadline of the wait has passed.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Durable {
    /// Waits for the next signal with this name and returns the payload of the signal. The signal is journaled as a step, so the call
    /// returns the same payload in each attempt. During the wait, the job is `parked` and holds no slot, no lease and no connection. A
    /// signal sent before this call is received immediately.
    ///
    /// Signals are sent with [`JobRef::signal`](crate::JobRef::signal), or `queue.signal` in SQL. An attempt may use each name only once.
    /// To receive several signals with one name, add a suffix: `("vote", i)` receives the next signal named `vote`.
    ///
    /// The wait suspends the attempt, like [`sleep`](Self::sleep). While a step runs concurrently, the attempt polls for the signal at
    /// intervals that grow from a second to a minute. A payload that does not fit `T` fails the attempt, as with a step. The signal stays
    /// journaled, so the next attempt receives the same signal.
    ///
    /// ```
    /// # use queue_core::durable::Durable;
    /// # use std::time::Duration;
    /// # async fn example(cx: &Durable) -> queue_core::JobResult {
    /// let who: String = cx.receive("approved").await;
    /// let paid: Option<u64> = cx.receive("paid").timeout(Duration::from_hours(72)).await; // `None` after three days
    /// # Ok(()) }
    /// ```
    pub fn receive<T: DeserializeOwned>(&self, name: impl Into<StepName>) -> Receive<'_, T> {
        Receive { cx: self, name: name.into(), payload: PhantomData }
    }

    /// Waits until the signal arrives or the timeout passes.
    async fn receive_step(&self, journal: &Arc<Journal>, name: &StepName, timeout: Option<Duration>) -> Result<StepResult, Failure> {
        let (signal, step) = (name.text(), checked_name(self, name.clone())?);
        if signal.is_empty() {
            return Err(Failure::terminal(journal.step_error(&step, "the name of a signal must not be empty")));
        }
        let timeout_step = format!("{step}{TIMEOUT_SUFFIX}");
        check_length(journal, &step, &timeout_step)?;
        if let Some(result) = journal.look_up(&step)? {
            return Ok(result);
        }
        let until = match timeout {
            Some(timeout) => Some(self.deadline(journal, &timeout_step, timeout).await?),
            None => None,
        };
        let mut interval = POLL_INTERVAL;
        loop {
            {
                let _in_flight = journal.begin_step();
                let request = journal.signal_request(&step, signal, until.is_some().then(|| timeout_step.clone()));
                if let Some(result) = journal.receive(request).await? {
                    return Ok(result);
                }
            }
            let _waiting = journal.start_wait(Wait { until, signal: Some(signal.to_owned()) });
            let remaining = until.map_or(interval, |until| until.saturating_duration_since(Instant::now()).min(interval));
            tokio::time::sleep(remaining.max(MIN_POLL_INTERVAL)).await;
            interval = (2 * interval).min(MAX_POLL_INTERVAL);
        }
    }

    /// Returns the deadline of the wait. The timeout counts from the first time the job reached the wait.
    async fn deadline(&self, journal: &Arc<Journal>, step: &str, timeout: Duration) -> Result<Instant, Failure> {
        if let Some(StepResult::Sleep(until)) = journal.look_up(step)? {
            return Ok(until);
        }
        if timeout > MAX_WAIT {
            return Err(Failure::terminal(journal.step_error(step, "a timeout is limited to 100 years")));
        }
        let _in_flight = journal.begin_step();
        journal.write(journal.entry(step, None, Instant::now(), Some(timeout))?).await?;
        Ok(Instant::now() + timeout)
    }

    /// Returns the value of `result`, or aborts the attempt with the failure.
    async fn or_abort<T>(&self, result: Result<T, Failure>) -> T {
        match result {
            Ok(value) => value,
            Err(failure) => {
                self.journal().abort(failure);
                pending().await
            }
        }
    }
}

/// Decodes the payload of a signal.
fn decode_signal<T: DeserializeOwned>(journal: &Journal, name: &str, result: StepResult) -> Result<T, Error> {
    decode(journal, name, result).map_err(|error| match error {
        Error::Step { why, .. } => journal.step_error(name, &format!("the payload of the signal, which stays received: {why}")),
        error => error,
    })
}

fn check_length(journal: &Journal, step: &str, timeout_step: &str) -> Result<(), Failure> {
    if timeout_step.len() > MAX_NAME_BYTES {
        return Err(Failure::terminal(journal.step_error(step, "the name of a received signal is limited to 190 bytes")));
    }
    Ok(())
}

/// Future returned by [`Durable::receive`]. Resolves to the payload of the signal.
///
/// ```
/// use queue_core::durable::{Durable, Receive};
///
/// # async fn example(cx: &Durable) {
/// let approval: Receive<'_, String> = cx.receive("approved");
/// let user = approval.await;
/// println!("approved by {user}");
/// # }
/// ```
#[must_use = "nothing is received until this is awaited"]
pub struct Receive<'c, T> {
    cx: &'c Durable,
    name: StepName,
    payload: PhantomData<fn() -> T>,
}

impl<'c, T: DeserializeOwned + Send> Receive<'c, T> {
    /// Sets a timeout for the wait. The timeout counts from the first time the job reached the wait, by the database's clock.
    ///
    /// A signal that arrives after the timeout is still received if the job has not yet recorded the end of the wait. Otherwise, the
    /// signal is kept for the job's next wait for a signal with this name. A timeout of more than 100 years is a terminal failure.
    pub fn timeout(self, timeout: Duration) -> ReceiveWithin<'c, T> {
        ReceiveWithin { receive: self, timeout }
    }

    async fn wait(self) -> T {
        let (journal, Self { cx, name, .. }) = (self.cx.journal(), self);
        let result = cx.receive_step(journal, &name, None).await.and_then(|result| match result {
            StepResult::Step(_) => Ok(decode_signal(journal, &name.name, result)?),
            StepResult::Sleep(_) => {
                let why = format!("its wait is journaled as timed out, so there is no `{}`; use another name", type_name::<T>());
                Err(journal.step_error(&name.name, &why).into())
            }
        });
        cx.or_abort(result).await
    }
}

/// Future returned by [`Receive::timeout`]. Resolves to the payload of the signal, or to `None` after the timeout.
///
/// ```
/// use queue_core::durable::{Durable, ReceiveWithin};
/// use std::time::Duration;
///
/// # async fn example(cx: &Durable) {
/// let approval: ReceiveWithin<'_, String> = cx.receive("approved").timeout(Duration::from_hours(72));
/// match approval.await {
///     Some(user) => println!("approved by {user}"),
///     None => println!("not approved within three days"),
/// }
/// # }
/// ```
#[must_use = "nothing is received until this is awaited"]
pub struct ReceiveWithin<'c, T> {
    receive: Receive<'c, T>,
    timeout: Duration,
}

impl<T: DeserializeOwned + Send> ReceiveWithin<'_, T> {
    async fn wait(self) -> Option<T> {
        let Self { receive: Receive { cx, name, .. }, timeout } = self;
        let journal = cx.journal();
        let result = cx.receive_step(journal, &name, Some(timeout)).await.and_then(|result| match result {
            StepResult::Step(_) => Ok(Some(decode_signal(journal, &name.name, result)?)),
            StepResult::Sleep(_) => Ok(None),
        });
        cx.or_abort(result).await
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
