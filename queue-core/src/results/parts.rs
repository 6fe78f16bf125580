//! What the jobs of a map came to, for the durable job that has mapped them.

use std::{fmt, marker::PhantomData, time::Duration};

use super::{WaitError, decode};
use crate::{
    context::{ChildStatus, Durable},
    define::{JobResult, JobType},
    enqueue::Parts,
};

impl<'c, J: JobType> Parts<'c, J> {
    /// Waits until all are over, and says how many came to what: the same in each attempt. Meanwhile the job is `parked`, and holds no slot, no lease
    /// and no connection. It is woken once, however many there are.
    ///
    /// That some are dead or were cancelled is no error: see the counts, and the [`outputs`](Ended::outputs). A dead part counts as over, and it
    /// counts once: one that is requeued changes nothing of what is said here.
    ///
    /// # Errors
    /// What keeps it from being known: [`Error::Database`](crate::Error::Database).
    pub async fn join(self) -> JobResult<Ended<'c, J>> {
        let Self { cx, name, total, .. } = self;
        let look = cx.wait_for_map(&name).await?;
        let [total, completed, dead, cancelled] = [total, look.completed, look.dead, look.cancelled].map(i64::unsigned_abs);
        Ok(Ended { total, completed, dead, cancelled, cx, name, job: PhantomData })
    }
}

/// What the jobs of a map came to; from [`Parts::join`].
#[non_exhaustive]
pub struct Ended<'c, J> {
    /// How many there are.
    pub total: u64,
    /// How many completed.
    pub completed: u64,
    /// How many are dead letters.
    pub dead: u64,
    /// How many were cancelled, or have expired.
    pub cancelled: u64,
    cx: &'c Durable,
    name: String,
    job: PhantomData<fn() -> J>,
}

impl<'c, J: JobType> Ended<'c, J> {
    /// What each of them returned, in the order in which they were mapped, a page at a time.
    pub fn outputs(&self) -> Outputs<'c, J> {
        Outputs { cx: self.cx, name: self.name.clone(), chunk: 0, place: 0, job: PhantomData }
    }
}

impl<J> fmt::Debug for Ended<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, completed, dead, cancelled, .. } = self;
        let mut said = f.debug_struct("Ended");
        said.field("total", total).field("completed", completed).field("dead", dead).field("cancelled", cancelled).finish_non_exhaustive()
    }
}

/// What the jobs of a map returned; from [`Ended::outputs`].
pub struct Outputs<'c, J> {
    cx: &'c Durable,
    name: String,
    chunk: i32,
    place: u64,
    job: PhantomData<fn() -> J>,
}

impl<J: JobType> Outputs<'_, J> {
    /// The next of them, a thousand at most, each with its place, from 0 on; `None` after the last.
    ///
    /// They are read from history, as it is now: a part that was requeued since is what it came to last, or [`WaitError::Timeout`] if it is not over
    /// again. [`WaitError::NotFound`] is said of what has been pruned: join within the retention of your history.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database).
    pub async fn next_page(&mut self) -> JobResult<Option<Vec<(u64, Result<J::Output, WaitError>)>>> {
        let looks = self.cx.load_map_chunk(&self.name, self.chunk).await?;
        if looks.is_empty() {
            return Ok(None);
        }
        let first = self.place;
        (self.chunk, self.place) = (self.chunk + 1, first + looks.len() as u64);
        Ok(Some((first..).zip(looks.into_iter().map(said::<J>)).collect()))
    }
}

impl<J> fmt::Debug for Outputs<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("name", &self.name).field("place", &self.place).finish_non_exhaustive()
    }
}

fn said<J: JobType>(look: ChildStatus) -> Result<J::Output, WaitError> {
    let ChildStatus { id: job, state, attempts, output, error } = look;
    match state.as_deref() {
        Some("completed") => decode::<J>(job, output.as_deref()),
        Some("cancelled") => Err(WaitError::Cancelled { job, error }),
        Some("expired") => Err(WaitError::Expired { job }),
        Some("dead") => Err(WaitError::Dead { job, error: error.unwrap_or_default(), attempts }),
        Some(_) => Err(WaitError::Timeout { job, timeout: Duration::ZERO }),
        None => Err(WaitError::NotFound { job }),
    }
}
