//! How handlers are told to end.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ClaimedJob;
use crate::{context::Ask, define::JobId};

/// How handlers are told to end: asked first, then dropped. All of a queue at once, or a single one that was cancelled.
#[derive(Default)]
pub struct Halt {
    /// Fires when handlers should end.
    pub ask: Arc<Ask>,
    /// Fires when handlers are dropped.
    pub drop: CancellationToken,
    /// How long a handler whose job was cancelled may go on.
    pub(super) grace: Duration,
    single: Mutex<Single>,
}

/// Jobs that were cancelled. All attempts of a queue wait for one token, which is exchanged when it has fired: one of its own for each would be
/// paid for by every job.
#[derive(Default)]
struct Single {
    jobs: HashSet<(Uuid, JobId)>,
    changed: Option<CancellationToken>,
}

impl Halt {
    /// With this grace for the handlers of cancelled jobs.
    pub fn new(grace: Duration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Tells this job's handler to stop, and drops it when its grace is over.
    pub fn cancel(&self, token: Uuid, id: JobId) {
        let mut single = self.single();
        single.jobs.insert((token, id));
        if let Some(changed) = single.changed.take() {
            changed.cancel();
        }
    }

    /// Forgets a job that was cancelled.
    pub fn forget(&self, token: Uuid, id: JobId) {
        self.single().jobs.remove(&(token, id));
    }

    pub(super) fn is_cancelled(&self, job: &ClaimedJob) -> bool {
        self.single().jobs.contains(&(job.token, job.id))
    }

    /// Fires when handlers are dropped or any job is cancelled; `None` if this one is.
    pub(super) fn changed(&self, job: &ClaimedJob) -> Option<CancellationToken> {
        let mut single = self.single();
        if !single.jobs.is_empty() && single.jobs.contains(&(job.token, job.id)) {
            return None;
        }
        Some(single.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Which of these were cancelled; and what fires when handlers are dropped or any job is cancelled from now on.
    pub(super) fn look<'j>(&self, jobs: impl Iterator<Item = &'j ClaimedJob>) -> (Vec<bool>, CancellationToken) {
        let mut single = self.single();
        let cancelled = jobs.map(|job| single.jobs.contains(&(job.token, job.id))).collect();
        (cancelled, single.changed.get_or_insert_with(|| self.drop.child_token()).clone())
    }

    /// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
    fn single(&self) -> MutexGuard<'_, Single> {
        self.single.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
