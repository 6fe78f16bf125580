//! Stream of a job's progress.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt as _, stream::unfold};

use super::{
    error::WaitError,
    poll::{JobSnapshot, WaitOutcome},
    progress::Progress,
    queue::Queue,
    snapshots::Snapshots,
};
use crate::connect::JobRef;

/// Stream of a job's progress. Created by [`QueueJob::watch`](crate::operate::QueueJob::watch) and [`JobRef::watch`].
///
/// The first item is yielded immediately. The job is polled five times a second, and each change yields another item. The last item has
/// the job's final state in [`over`](Progress::over), or is an error. The stream can be dropped at any time. The type implements
/// [`Stream`] with items of type `Result<Progress, WaitError>`; [`next`](Self::next) works without the trait.
///
/// ```no_run
/// # async fn example(queue: queue_core::Queue, id: queue_core::JobId) -> Result<(), queue_core::wait::WaitError> {
/// let mut watch = queue.job(id).watch();
/// while let Some(progress) = watch.next().await {
///     println!("{:?}", progress?.fraction);
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is polled until the next item is requested"]
pub struct Watch {
    job: JobRef,
    items: Pin<Box<dyn Stream<Item = Result<Progress, WaitError>> + Send>>,
}

impl Watch {
    pub(super) fn new(job: JobRef, queue: Queue) -> Self {
        let state = WatchState { job, snapshots: Snapshots::new(queue, job, true), last: None };
        Self { job, items: Box::pin(unfold(Some(state), next_item)) }
    }

    /// Waits for the next item. Returns `None` after the item with the final state, or after an error.
    pub async fn next(&mut self) -> Option<Result<Progress, WaitError>> {
        self.items.next().await
    }
}

impl Stream for Watch {
    type Item = Result<Progress, WaitError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("job", &self.job).finish_non_exhaustive()
    }
}

struct WatchState {
    job: JobRef,
    snapshots: Snapshots,
    last: Option<Arc<JobSnapshot>>,
}

async fn next_item(state: Option<WatchState>) -> Option<(Result<Progress, WaitError>, Option<WatchState>)> {
    let mut state = state?;
    loop {
        match state.snapshots.next().await {
            Err(error) => return Some((Err(error), None)),
            Ok(snapshot) if snapshot.outcome == WaitOutcome::NotFound => {
                return Some((Err(WaitError::NotFound { job: state.job.id() }), None));
            }
            Ok(snapshot) if snapshot.progress.over.is_some() => return Some((Ok(snapshot.progress.clone()), None)),
            Ok(snapshot) if state.last.as_ref().is_some_and(|last| last.progress == snapshot.progress) => {}
            Ok(snapshot) => {
                let progress = snapshot.progress.clone();
                state.last = Some(snapshot);
                return Some((Ok(progress), Some(state)));
            }
        }
    }
}
