//! The verdict on one leased job, with everything its statement needs.

use std::{sync::Arc, time::Duration};

use queue_core::{
    JobId, Registration,
    runner::{AttemptEnd, Ending, Fence, HistoryOutcome},
};
use uuid::Uuid;

use crate::{
    lanes::{LeaseGuard, LeasedJob},
    tally::{AttemptEndKind, CountedAttempt},
};

/// The ending of one leased job, and the lease that fences it.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) token: Uuid,
    pub(crate) id: JobId,
    pub(crate) lane: i64,
    pub(crate) crashes: i16,
    /// Number of jobs that the lease had when it was claimed.
    pub(crate) batch: usize,
    /// The job has already left its lease, for example by its handler's own transaction. Nothing is written.
    pub(crate) is_settled: bool,
    pub(crate) ending: Ending,
    /// Guard of the lease, dropped once the settle loop has written this verdict. `None` if the handler's transaction writes it.
    pub(crate) holding: Option<Arc<LeaseGuard>>,
    /// Attempt to count once this is written. `None` if no handler started.
    pub(crate) attempt: Option<CountedAttempt>,
}

impl Settlement {
    /// Settles an attempt that has ended. `jitter` is a uniform random number from 0 to 1.
    pub(crate) fn of(claimed: &LeasedJob, registration: Option<&Registration>, ended: AttemptEnd, ran: Duration, jitter: f64) -> Self {
        let (is_settled, is_suspended) = (ended.is_over(), ended.is_suspended());
        let settlement = Self::with(claimed, is_settled, ended.ending(registration, &claimed.job, ran, jitter));
        if is_suspended { Self { crashes: 0, ..settlement } } else { settlement }
    }

    /// Releases a job whose handler has not started, or is about to be aborted.
    pub(crate) fn release(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.released())
    }

    /// Cancels a job whose handler has not started.
    pub(crate) fn cancel(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.cancelled())
    }

    /// Expires a job whose handler has not started in time.
    pub(crate) fn expire(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.expired())
    }

    /// Adds the attempt to count.
    pub(crate) fn counting(mut self, attempt: CountedAttempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Returns the attempt to count, with its outcome and duration. `is_refused` counts it as a lost lease.
    pub(super) fn counted(&self, is_refused: bool) -> Option<(CountedAttempt, HistoryOutcome, Duration)> {
        let attempt = self.attempt?;
        let end_kind = if is_refused { AttemptEndKind::LeaseLost } else { attempt.end_kind };
        Some((CountedAttempt { end_kind, ..attempt }, self.ending.history_outcome(), self.ending.ran()))
    }

    /// Settles a job within its handler's own transaction.
    pub(super) fn within(fence: Fence, ending: Ending) -> Self {
        let Fence { token, id, lane, crashes, .. } = fence;
        Self { token, id, lane, crashes, batch: 1, is_settled: false, ending, holding: None, attempt: None }
    }

    fn with(claimed: &LeasedJob, is_settled: bool, ending: Ending) -> Self {
        let LeasedJob { job, batch, holding, .. } = claimed;
        let (token, id, lane, crashes) = (job.token, job.id, job.lane, job.crashes);
        Self { token, id, lane, crashes, batch: *batch, is_settled, ending, holding: Some(Arc::clone(holding)), attempt: None }
    }
}
