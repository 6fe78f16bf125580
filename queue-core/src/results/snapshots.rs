//! Successive snapshots of one job, for one wait or one watch.

use std::sync::Arc;

use super::{error::WaitError, poll::JobSnapshot, queue::Queue, waiter::JobSubscription};
use crate::connect::JobRef;

/// Successive snapshots of a job. Resubscribes at most once if the waiter's task ends, for example because its tokio runtime shuts down.
pub(super) struct Snapshots {
    queue: Queue,
    job: JobRef,
    watching: bool,
    subscription: Option<JobSubscription>,
    has_restarted: bool,
}

impl Snapshots {
    /// Creates the sequence of snapshots. The first call to [`next`](Self::next) subscribes to the job.
    pub(super) fn new(queue: Queue, job: JobRef, watching: bool) -> Self {
        Self { queue, job, watching, subscription: None, has_restarted: false }
    }

    /// Waits for the next snapshot that differs from the previous snapshot.
    pub(super) async fn next(&mut self) -> Result<Arc<JobSnapshot>, WaitError> {
        loop {
            let subscription = match &mut self.subscription {
                Some(subscription) => subscription,
                none => none.insert(self.queue.subscribe(self.job, self.watching)?),
            };
            match subscription.next().await {
                Some(snapshot) => return snapshot,
                None if self.has_restarted => return Err(WaitError::waiter_ended()),
                None => (self.subscription, self.has_restarted) = (None, true),
            }
        }
    }
}
