//! What is to be written for one claimed job.

use std::{sync::Arc, time::Duration};

use queue_core::{
    JobId, Registration,
    runner::{Counted, Ended, Ending, Fence},
};
use uuid::Uuid;

use crate::{
    lanes::{LeaseGuard, LeasedJob},
    tally::{Attempt, How},
};

/// The ending of one claimed job, and the lease that it is written under.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) token: Uuid,
    pub(crate) id: JobId,
    pub(crate) lane: i64,
    pub(crate) crashes: i16,
    /// How many jobs its lease had in all.
    pub(crate) batch: usize,
    /// Nothing is to be written: the job has left its lease, be it by its handler's own transaction.
    pub(crate) over: bool,
    pub(crate) ending: Ending,
    /// Of its lease, if it is the settle loop that writes this; dropped once it has.
    pub(crate) holding: Option<Arc<LeaseGuard>>,
    /// What is counted once this is written; none if no handler began.
    pub(crate) attempt: Option<Attempt>,
}

impl Settlement {
    /// For an attempt that ended so. `dice` is drawn evenly from 0 to 1, for jitter.
    pub(crate) fn of(claimed: &LeasedJob, registration: Option<&Registration>, ended: Ended, ran: Duration, dice: f64) -> Self {
        let (over, is_suspended) = (ended.is_over(), ended.is_suspended());
        let settlement = Self::with(claimed, over, ended.ending(registration, &claimed.job, ran, dice));
        if is_suspended { Self { crashes: 0, ..settlement } } else { settlement }
    }

    /// For a job that was not begun, or is to be broken off.
    pub(crate) fn release(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.released())
    }

    /// For a job that was cancelled before it was begun.
    pub(crate) fn cancel(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.cancelled())
    }

    /// For a job that was not begun because its time is over.
    pub(crate) fn expire(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.expired())
    }

    /// Of an attempt that began.
    pub(crate) fn counting(mut self, attempt: Attempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// What is counted of it: once it is written, or refused because others have the job.
    pub(super) fn counted(&self, is_refused: bool) -> Option<(Attempt, Counted, Duration)> {
        let attempt = self.attempt?;
        let how = if is_refused { How::LeaseLost } else { attempt.how };
        Some((Attempt { how, ..attempt }, self.ending.counted(), self.ending.ran()))
    }

    /// For a handler's own transaction.
    pub(super) fn within(fence: Fence, ending: Ending) -> Self {
        let Fence { token, id, lane, crashes, .. } = fence;
        Self { token, id, lane, crashes, batch: 1, over: false, ending, holding: None, attempt: None }
    }

    fn with(claimed: &LeasedJob, over: bool, ending: Ending) -> Self {
        let LeasedJob { job, batch, holding, .. } = claimed;
        let (token, id, lane, crashes) = (job.token, job.id, job.lane, job.crashes);
        Self { token, id, lane, crashes, batch: *batch, over, ending, holding: Some(Arc::clone(holding)), attempt: None }
    }
}
