//! Verdict on one leased job, with the data that the settle statements need.

use std::{sync::Arc, time::Duration};

use queue_core::{
    JobId,
    registry::Registration,
    runner::{AttemptEnd, Ending, Fence, HistoryOutcome},
};
use uuid::Uuid;

use crate::{
    lanes::{LeaseGuard, LeasedJob},
    tally::{AttemptEndKind, CountedAttempt},
};

/// Verdict on one leased job, fenced by the job's lease.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) token: Uuid,
    pub(crate) id: JobId,
    pub(crate) lane: i64,
    pub(crate) crashes: i16,
    /// Number of jobs in the lease at the time of the claim.
    pub(crate) batch: usize,
    /// Whether the job has already left its lease, for example in its handler's own transaction. Nothing is then written for the job.
    pub(crate) is_settled: bool,
    pub(crate) ending: Ending,
    /// Lease guard, dropped once the settle loop has written the verdict. `None` if the handler's transaction writes the verdict.
    pub(crate) holding: Option<Arc<LeaseGuard>>,
    /// Attempt to record in the metrics once the verdict is written. `None` if no handler started.
    pub(crate) attempt: Option<CountedAttempt>,
}

impl Settlement {
    /// Creates the settlement of an ended attempt. `jitter` is a uniform random number from 0 to 1.
    pub(crate) fn of(claimed: &LeasedJob, registration: Option<&Registration>, ended: AttemptEnd, ran: Duration, jitter: f64) -> Self {
        let (is_settled, is_suspended) = (ended.is_over(), ended.is_suspended());
        let settlement = Self::with(claimed, is_settled, ended.ending(registration, &claimed.job, ran, jitter));
        if is_suspended { Self { crashes: 0, ..settlement } } else { settlement }
    }

    /// Creates the settlement that releases a job whose handler has not started or is about to be aborted.
    pub(crate) fn release(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.released())
    }

    /// Creates the settlement that cancels a job whose handler has not started.
    pub(crate) fn cancel(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.cancelled())
    }

    /// Creates the settlement that expires a job whose handler did not start in time.
    pub(crate) fn expire(claimed: &LeasedJob) -> Self {
        Self::with(claimed, false, claimed.job.expired())
    }

    /// Adds the attempt to record in the metrics.
    pub(crate) fn counting(mut self, attempt: CountedAttempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Returns the attempt to record, with its outcome and duration. If `is_refused` is true, the attempt counts as a lost lease.
    pub(super) fn counted(&self, is_refused: bool) -> Option<(CountedAttempt, HistoryOutcome, Duration)> {
        let attempt = self.attempt?;
        let end_kind = if is_refused { AttemptEndKind::LeaseLost } else { attempt.end_kind };
        Some((CountedAttempt { end_kind, ..attempt }, self.ending.history_outcome(), self.ending.ran()))
    }

    /// Creates the settlement that is written in a handler's own transaction.
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
