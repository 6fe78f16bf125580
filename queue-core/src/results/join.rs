//! Waiting for the outcome of a child job, in the durable job that spawned the child.

use super::{WaitError, decode};
use crate::{
    context::ChildStatus,
    define::{Failure, JobResult, JobType},
    enqueue::Child,
};

impl<J: JobType> Child<'_, J> {
    /// Waits until the child has finished, and returns the child's output. Every attempt of the parent gets the same output.
    ///
    /// While waiting, the parent is `parked` and holds no slot, no lease and no connection. If the child has already finished, the output
    /// is returned immediately. The parent's attempt is suspended as during a [`sleep`](crate::durable::Durable::sleep). Several children
    /// can be awaited concurrently (`join!`).
    ///
    /// # Errors
    /// Returns [`WaitError::Dead`], [`WaitError::Cancelled`] or [`WaitError::Expired`] as a terminal failure, because another attempt
    /// would get the same result. To continue nevertheless, use [`outcome`](Self::outcome). Returns [`WaitError::Output`] if the output
    /// no longer fits `J::Output`.
    pub async fn join(self) -> JobResult<J::Output> {
        match self.outcome().await? {
            Ok(output) => Ok(output),
            // This error is not terminal, because another release may be able to decode the output.
            Err(error @ WaitError::Output { .. }) => Err(error.into()),
            Err(error) => Err(Failure::terminal(error)),
        }
    }

    /// Waits like [`join`](Self::join), but returns the child's failure as a value. The parent can then continue.
    ///
    /// ```
    /// # use queue_core::{JobResult, durable::Durable, job, wait::WaitError};
    /// # #[job(send_only, output = String)] #[derive(serde::Serialize, serde::Deserialize)] struct Bill;
    /// # async fn example(cx: &Durable) -> JobResult {
    /// match cx.spawn("bill", Bill).await?.outcome().await? {
    ///     Ok(number) => println!("{number}"),
    ///     Err(WaitError::Dead { error, .. }) => println!("without a bill: {error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Database`](crate::Error::Database) if the outcome cannot be read.
    pub async fn outcome(self) -> JobResult<Result<J::Output, WaitError>> {
        let ChildStatus { id: job, state, attempts, output, error } = self.cx.wait_for_child(&self.name).await?;
        Ok(match state.as_deref() {
            Some("completed") => decode::<J>(job, output.as_deref()),
            Some("cancelled") => Err(WaitError::Cancelled { job, error }),
            Some("expired") => Err(WaitError::Expired { job }),
            _ => Err(WaitError::Dead { job, error: error.unwrap_or_default(), attempts }),
        })
    }
}
