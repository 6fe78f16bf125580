//! Stop requests to running handlers.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ClaimedJob;
use crate::{context::StopRequest, define::JobId};

/// Handle that stops running handlers. It first requests a stop, and later drops the handlers that are still running. A stop applies to
/// all handlers of a queue, or to the handler of one cancelled job.
#[derive(Default)]
pub struct Halt {
    /// Stop request to all handlers.
    pub stop_request: Arc<StopRequest>,
    /// Token whose cancellation drops all handlers.
    pub drop: CancellationToken,
    /// Grace period of a handler whose job was cancelled.
    pub(super) grace: Duration,
    cancelled: Mutex<CancelledJobs>,
}

/// Cancelled jobs. All attempts of a queue wait for one shared cancellation token, because a token per attempt would slow down every job.
/// The token is replaced after each cancellation.
#[derive(Default)]
struct CancelledJobs {
    jobs: HashSet<(Uuid, JobId)>,
    changed: Option<CancellationToken>,
}

impl Halt {
    /// Creates a handle that has not requested a stop. `grace` is the grace period of handlers whose job was cancelled.
    pub fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Cancels the job. Its handler is dropped after the grace period.
    pub fn cancel(&self, token: Uuid, id: JobId) {
        let mut cancelled = self.lock();
        cancelled.jobs.insert((token, id));
        if let Some(changed) = cancelled.changed.take() {
            changed.cancel();
        }
    }

    /// Removes a job from the cancelled jobs after its attempt has ended.
    pub fn forget(&self, token: Uuid, id: JobId) {
        self.lock().jobs.remove(&(token, id));
    }

    pub(super) fn is_cancelled(&self, job: &ClaimedJob) -> bool {
        self.lock().jobs.contains(&(job.token, job.id))
    }

    /// Returns a token that is cancelled when the handlers are dropped or any job is cancelled. Returns `None` if `job` is already
    /// cancelled.
    pub(super) fn changed(&self, job: &ClaimedJob) -> Option<CancellationToken> {
        let mut cancelled = self.lock();
        if !cancelled.jobs.is_empty() && cancelled.jobs.contains(&(job.token, job.id)) {
            return None;
        }
        Some(cancelled.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Returns for each job whether it is cancelled. Also returns a token that is cancelled when the handlers are dropped or a further
    /// job is cancelled.
    pub(super) fn cancelled_jobs<'j>(&self, jobs: impl Iterator<Item = &'j ClaimedJob>) -> (Vec<bool>, CancellationToken) {
        let mut cancelled = self.lock();
        let is_cancelled = jobs.map(|job| cancelled.jobs.contains(&(job.token, job.id))).collect();
        (is_cancelled, cancelled.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Locks the cancelled jobs. Ignores poisoning, because a panic under the lock leaves no partial update.
    fn lock(&self) -> MutexGuard<'_, CancelledJobs> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
