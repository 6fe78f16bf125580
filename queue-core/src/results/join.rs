//! What a child of a durable job came to, for its parent.

use super::{WaitError, decode};
use crate::{
    context::ChildStatus,
    define::{Failure, JobResult, JobType},
    enqueue::Child,
};

impl<J: JobType> Child<'_, J> {
    /// Waits until the child is over, and gives what it returned: the same in each attempt. Meanwhile the job is `parked`, and holds no slot, no lease
    /// and no connection. A child that was over before is there at once.
    ///
    /// The attempt is left as in a [`sleep`](crate::Durable::sleep). Children that are waited for at once (`join!`) run beside each other.
    ///
    /// # Errors
    /// [`WaitError::Dead`], [`WaitError::Cancelled`] and [`WaitError::Expired`], as a terminal failure: another attempt is told the same. To go on
    /// nevertheless, look with [`outcome`](Self::outcome). [`WaitError::Output`] for what does not fit `J::Output` any more.
    pub async fn join(self) -> JobResult<J::Output> {
        match self.outcome().await? {
            Ok(output) => Ok(output),
            // Another release may read it.
            Err(error @ WaitError::Output { .. }) => Err(error.into()),
            Err(error) => Err(Failure::terminal(error)),
        }
    }

    /// As [`join`](Self::join), for a parent that goes on whatever the child came to.
    ///
    /// ```
    /// # use queue_core::{Durable, JobResult, WaitError, job};
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
    /// What keeps it from being known: [`Error::Database`](crate::Error::Database).
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
