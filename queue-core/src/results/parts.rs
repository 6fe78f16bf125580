//! Results of a map: the counts of its jobs by outcome, and their outputs. The durable job that spawned the map waits for the results.

use std::{fmt, marker::PhantomData, time::Duration};

use super::{WaitError, decode};
use crate::{
    context::{ChildStatus, Durable},
    define::{JobResult, JobType},
    enqueue::Parts,
};

impl<'c, J: JobType> Parts<'c, J> {
    /// Waits until all jobs of the map have finished, and returns the number of jobs by outcome. Every attempt of the durable job gets
    /// the same result.
    ///
    /// While waiting, the durable job is `parked` and holds no slot, no lease and no connection. It is woken once, regardless of the
    /// number of jobs in the map.
    ///
    /// Dead letters, cancelled jobs and expired jobs do not cause an error. The result contains their counts, and
    /// [`outputs`](MapOutcome::outputs) returns an error in place of each of their outputs. A dead letter counts as finished and is
    /// counted once. Requeueing a dead letter does not change the result.
    ///
    /// # Errors
    /// Returns [`Error::Database`](crate::Error::Database) if the outcomes cannot be read.
    pub async fn join(self) -> JobResult<MapOutcome<'c, J>> {
        let Self { cx, name, total, .. } = self;
        let status = cx.wait_for_map(&name).await?;
        let [total, completed, dead, cancelled] = [total, status.completed, status.dead, status.cancelled].map(i64::unsigned_abs);
        Ok(MapOutcome { total, completed, dead, cancelled, cx, name, job: PhantomData })
    }
}

/// Counts of a map's finished jobs, by outcome. Created by [`Parts::join`].
///
/// ```
/// # use queue_core::{JobResult, durable::Durable, job};
/// # #[job(send_only, output = u64)]
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Resize {
/// #     image: i64,
/// # }
/// # async fn example(cx: &Durable) -> JobResult {
/// let parts = cx.map("resize", (1..=100).map(|image| Resize { image })).await?;
/// let outcome = parts.join().await?;
/// println!("{} of {} completed, {} dead", outcome.completed, outcome.total, outcome.dead);
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub struct MapOutcome<'c, J> {
    /// Number of jobs in the map.
    pub total: u64,
    /// Number of completed jobs.
    pub completed: u64,
    /// Number of dead letters.
    pub dead: u64,
    /// Number of cancelled or expired jobs.
    pub cancelled: u64,
    cx: &'c Durable,
    name: String,
    job: PhantomData<fn() -> J>,
}

impl<'c, J: JobType> MapOutcome<'c, J> {
    /// Returns a reader that loads the outputs page by page, in the order in which the jobs were mapped.
    pub fn outputs(&self) -> Outputs<'c, J> {
        Outputs { cx: self.cx, name: self.name.clone(), chunk: 0, place: 0, job: PhantomData }
    }
}

impl<J> fmt::Debug for MapOutcome<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, completed, dead, cancelled, .. } = self;
        let mut debug = f.debug_struct("MapOutcome");
        debug.field("total", total).field("completed", completed).field("dead", dead).field("cancelled", cancelled).finish_non_exhaustive()
    }
}

/// Reader of the outputs of a map. Created by [`MapOutcome::outputs`].
///
/// ```
/// # use queue_core::{JobResult, durable::Durable, job};
/// # #[job(send_only, output = u64)]
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Resize {
/// #     image: i64,
/// # }
/// # async fn example(cx: &Durable) -> JobResult {
/// let outcome = cx.map("resize", (1..=100).map(|image| Resize { image })).await?.join().await?;
/// let mut outputs = outcome.outputs();
/// while let Some(page) = outputs.next_page().await? {
///     for (position, output) in page {
///         println!("{position}: {output:?}");
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Outputs<'c, J> {
    cx: &'c Durable,
    name: String,
    chunk: i32,
    place: u64,
    job: PhantomData<fn() -> J>,
}

impl<J: JobType> Outputs<'_, J> {
    /// Returns the next page with up to a thousand outputs. Each output is paired with its position in the map, starting at 0. Returns
    /// `None` after the last page.
    ///
    /// Each page is read from the job history at the time of the call. For a requeued job, the page contains the outcome of the latest
    /// run, or [`WaitError::Timeout`] if that run has not finished. For a pruned job, it contains [`WaitError::NotFound`]. Therefore,
    /// read the outputs before the history is pruned.
    ///
    /// # Errors
    /// Returns [`Error::Database`](crate::Error::Database) if the outputs cannot be read.
    pub async fn next_page(&mut self) -> JobResult<Option<Vec<(u64, Result<J::Output, WaitError>)>>> {
        let statuses = self.cx.load_map_chunk(&self.name, self.chunk).await?;
        if statuses.is_empty() {
            return Ok(None);
        }
        let first = self.place;
        (self.chunk, self.place) = (self.chunk + 1, first + statuses.len() as u64);
        Ok(Some((first..).zip(statuses.into_iter().map(outcome::<J>)).collect()))
    }
}

impl<J> fmt::Debug for Outputs<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("name", &self.name).field("place", &self.place).finish_non_exhaustive()
    }
}

fn outcome<J: JobType>(status: ChildStatus) -> Result<J::Output, WaitError> {
    let ChildStatus { id: job, state, attempts, output, error } = status;
    match state.as_deref() {
        Some("completed") => decode::<J>(job, output.as_deref()),
        Some("cancelled") => Err(WaitError::Cancelled { job, error }),
        Some("expired") => Err(WaitError::Expired { job }),
        Some("dead") => Err(WaitError::Dead { job, error: error.unwrap_or_default(), attempts }),
        Some(_) => Err(WaitError::Timeout { job, timeout: Duration::ZERO }),
        None => Err(WaitError::NotFound { job }),
    }
}
