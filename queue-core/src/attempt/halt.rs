//! Requests to handlers to end.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ClaimedJob;
use crate::{context::StopRequest, define::JobId};

/// Control over running handlers: requests their end first, then drops them. It applies to all handlers of a queue, or to a single
/// cancelled job.
#[derive(Default)]
pub struct Halt {
    /// Requests the end of all handlers.
    pub stop_request: Arc<StopRequest>,
    /// Drops all handlers.
    pub drop: CancellationToken,
    /// Grace period of a handler whose job was cancelled.
    pub(super) grace: Duration,
    cancelled: Mutex<CancelledJobs>,
}

/// Cancelled jobs. All attempts of a queue wait for one token, which is replaced once it has fired: a token per attempt would cost every
/// job.
#[derive(Default)]
struct CancelledJobs {
    jobs: HashSet<(Uuid, JobId)>,
    changed: Option<CancellationToken>,
}

impl Halt {
    /// Creates a control with this grace period for handlers of cancelled jobs.
    pub fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Cancels the handler of this job; it is dropped after the grace period.
    pub fn cancel(&self, token: Uuid, id: JobId) {
        let mut cancelled = self.lock();
        cancelled.jobs.insert((token, id));
        if let Some(changed) = cancelled.changed.take() {
            changed.cancel();
        }
    }

    /// Removes a cancelled job after its attempt has ended.
    pub fn forget(&self, token: Uuid, id: JobId) {
        self.lock().jobs.remove(&(token, id));
    }

    pub(super) fn is_cancelled(&self, job: &ClaimedJob) -> bool {
        self.lock().jobs.contains(&(job.token, job.id))
    }

    /// Returns a token that fires when handlers are dropped or any job is cancelled; `None` if this job is cancelled already.
    pub(super) fn changed(&self, job: &ClaimedJob) -> Option<CancellationToken> {
        let mut cancelled = self.lock();
        if !cancelled.jobs.is_empty() && cancelled.jobs.contains(&(job.token, job.id)) {
            return None;
        }
        Some(cancelled.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Returns for each job whether it is cancelled, and a token that fires when handlers are dropped or another job is cancelled.
    pub(super) fn cancelled_jobs<'j>(&self, jobs: impl Iterator<Item = &'j ClaimedJob>) -> (Vec<bool>, CancellationToken) {
        let mut cancelled = self.lock();
        let is_cancelled = jobs.map(|job| cancelled.jobs.contains(&(job.token, job.id))).collect();
        (is_cancelled, cancelled.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// A poisoned lock is safe to use: no update under it is partial.
    fn lock(&self) -> MutexGuard<'_, CancelledJobs> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
