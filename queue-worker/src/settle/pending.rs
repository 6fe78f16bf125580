//! Verdicts that wait for the next settle, grouped by lease.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::{send::WholeLease, settlement::Settlement};
use crate::lanes::LeaseGuard;

/// Maximum number of times that a lease with unfinished jobs is deferred while complete leases are settled.
const MAX_DEFERRALS: u8 = 2;

/// Pending verdicts by lease. A lease whose jobs have all ended is settled as a whole, by its token.
#[derive(Default)]
pub(super) struct PendingVerdicts {
    leases: HashMap<Uuid, PendingLease>,
    count: usize,
}

/// Pending verdicts of one lease. `deferrals` counts how often the lease was deferred.
struct PendingLease {
    lease: Arc<LeaseGuard>,
    verdicts: Vec<Settlement>,
    deferrals: u8,
}

/// Verdicts and whole leases that are settled together.
#[derive(Default)]
pub(super) struct SettleBatch {
    pub(super) verdicts: Vec<Settlement>,
    /// Leases whose jobs have all ended, each with its verdicts in case the verdicts must be written separately.
    pub(super) leases: Vec<WholeLease>,
}

impl PendingVerdicts {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn extend(&mut self, verdicts: impl Iterator<Item = Settlement>) {
        for settlement in verdicts {
            // Only slots and housekeeping send verdicts to the settle loop, and these verdicts always have a lease.
            let Some(lease) = settlement.holding.clone() else { continue };
            if settlement.is_settled {
                // The lease no longer lists the job. The job counts as sent, so that the lease's remaining jobs can be settled as a
                // whole.
                lease.note_sent(1);
                continue;
            }
            let new = || PendingLease { verdicts: Vec::with_capacity(lease.unsent()), lease, deferrals: 0 };
            self.leases.entry(settlement.token).or_insert_with(new).verdicts.push(settlement);
            self.count += 1;
        }
    }

    /// Takes the verdicts to settle now.
    ///
    /// A lease is complete if each remaining job has a verdict that only records the job's completion. While there are complete leases, an
    /// incomplete lease with only such verdicts is deferred up to [`MAX_DEFERRALS`] times. If the lease completes in the meantime, no
    /// update of its row is needed. Without complete leases, all verdicts are taken immediately. A deferral therefore lasts only while
    /// other leases are settled.
    pub(super) fn next_batch(&mut self) -> SettleBatch {
        let mut batch = SettleBatch::default();
        let any_whole = self.leases.values().any(PendingLease::is_whole);
        self.leases.retain(|token, pending| {
            let is_whole = pending.is_whole();
            if !is_whole && any_whole && pending.is_plain() && pending.deferrals < MAX_DEFERRALS {
                pending.deferrals += 1;
                return true;
            }
            let mut verdicts = std::mem::take(&mut pending.verdicts);
            self.count -= verdicts.len();
            pending.lease.note_sent(verdicts.len());
            if is_whole {
                batch.leases.push((*token, verdicts));
            } else {
                batch.verdicts.append(&mut verdicts);
            }
            false
        });
        batch
    }
}

impl PendingLease {
    /// Returns whether each remaining job of the lease has one verdict, and each verdict only records the job's completion. A second
    /// verdict on the same job must not count as the missing verdict of a running job. The database also checks the number of jobs.
    fn is_whole(&self) -> bool {
        self.lease.unsent() == self.verdicts.len() && self.is_plain() && self.has_distinct_jobs()
    }

    /// Returns whether all verdicts are on different jobs. Sorting is fast, because verdicts arrive roughly in id order.
    fn has_distinct_jobs(&self) -> bool {
        let mut jobs: Vec<i64> = self.verdicts.iter().map(|settlement| settlement.id.0).collect();
        jobs.sort_unstable();
        jobs.windows(2).all(|pair| pair[0] != pair[1])
    }

    fn is_plain(&self) -> bool {
        self.verdicts.iter().all(|settlement| settlement.ending.is_plain())
    }
}

#[cfg(test)]
mod tests {
    use queue_core::{JobId, options::Verdict, runner::Ending};

    use super::*;
    use crate::lanes::LeaseRegistry;

    fn lease_of_three() -> Arc<LeaseGuard> {
        let lease = LeaseRegistry::default().begin();
        lease.expect(3);
        lease
    }

    fn completed(lease: &Arc<LeaseGuard>, id: i64, is_settled: bool) -> Settlement {
        let (token, holding, ending) = (lease.token(), Some(Arc::clone(lease)), Ending::new(Verdict::Complete, 1, None));
        Settlement { token, id: JobId(id), lane: 1, crashes: 0, batch: 3, is_settled, ending, holding, attempt: None }
    }

    #[test]
    fn settled_jobs_count_for_their_lease_and_are_not_written() {
        let (lease, mut pending) = (lease_of_three(), PendingVerdicts::default());
        pending.extend([completed(&lease, 1, true), completed(&lease, 2, false)].into_iter());
        let batch = pending.next_batch();
        assert_eq!((batch.verdicts.len(), batch.leases.len()), (1, 0), "one job still runs");
        pending.extend([completed(&lease, 3, false)].into_iter());
        let batch = pending.next_batch();
        assert_eq!((batch.verdicts.len(), batch.leases[0].0, batch.leases[0].1.len()), (0, lease.token(), 1), "the rest of the lease");
    }

    #[test]
    fn a_duplicate_verdict_does_not_count_for_another_job() {
        let (lease, mut pending) = (lease_of_three(), PendingVerdicts::default());
        pending.extend([1, 1, 2].map(|id| completed(&lease, id, false)).into_iter());
        let batch = pending.next_batch();
        assert_eq!((batch.verdicts.len(), batch.leases.len()), (3, 0), "the third job still runs");
    }

    #[test]
    fn no_state_remains_of_a_lease_whose_other_jobs_have_no_verdict() {
        let (lease, mut pending) = (lease_of_three(), PendingVerdicts::default());
        pending.extend([completed(&lease, 1, false), completed(&lease, 2, true)].into_iter());
        assert_eq!(pending.next_batch().verdicts.len(), 1);
        assert!(pending.is_empty() && pending.leases.is_empty(), "the worker may lose the lease, and then the third verdict never comes");
        pending.extend([completed(&lease, 3, true)].into_iter());
        assert!(pending.is_empty() && pending.leases.is_empty() && lease.unsent() == 0);
    }
}
