//! What is to be settled next: verdicts by lease.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use super::settlement::Settlement;
use crate::lanes::LeaseGuard;

/// Verdicts by lease, so that one which completed as a whole is settled by its token alone.
#[derive(Default)]
pub(super) struct Unsettled {
    leases: HashMap<Uuid, Unfinished>,
    waiting: usize,
}

/// Verdicts of one lease that wait.
struct Unfinished {
    holding: Arc<LeaseGuard>,
    verdicts: Vec<Settlement>,
    passed_over: u8,
}

/// One statement's worth.
#[derive(Default)]
pub(super) struct Flush {
    pub(super) verdicts: Vec<Settlement>,
    /// Each with its verdicts, in case they must be written one by one.
    pub(super) whole: Vec<(Uuid, Vec<Settlement>)>,
}

impl Unsettled {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(super) fn extend(&mut self, verdicts: impl Iterator<Item = Settlement>) {
        for one in verdicts {
            // Nothing but what a slot or housekeeping sends comes here, and that has its lease.
            let Some(holding) = one.holding.clone() else { continue };
            if one.over {
                // Only counted: the lease does not list it any more, so what is left of it may be settled as a whole.
                holding.note_sent(1);
                continue;
            }
            let fresh = || Unfinished { verdicts: Vec::with_capacity(holding.unsent()), holding, passed_over: 0 };
            self.leases.entry(one.token).or_insert_with(fresh).verdicts.push(one);
            self.waiting += 1;
        }
    }

    /// Takes what to flush now. While whole leases keep coming, one that is nearly finished is passed over twice, in the hope that it will be
    /// whole: that saves an update of its row. With nothing else to do everything goes at once, so this never adds a wait.
    pub(super) fn next_flush(&mut self) -> Flush {
        let mut flush = Flush::default();
        let any_whole = self.leases.values().any(Unfinished::is_whole);
        self.leases.retain(|token, lease| {
            let is_whole = lease.is_whole();
            if !is_whole && any_whole && lease.is_plain() && lease.passed_over < 2 {
                lease.passed_over += 1;
                return true;
            }
            let mut verdicts = std::mem::take(&mut lease.verdicts);
            self.waiting -= verdicts.len();
            lease.holding.note_sent(verdicts.len());
            if is_whole {
                flush.whole.push((*token, verdicts));
            } else {
                flush.verdicts.append(&mut verdicts);
            }
            false
        });
        flush
    }
}

impl Unfinished {
    /// As many verdicts as jobs, each of another job: one said twice would pass for that of a job that still runs. The database counts as well.
    fn is_whole(&self) -> bool {
        self.holding.unsent() == self.verdicts.len() && self.is_plain() && self.are_apart()
    }

    /// They come about in the order of their numbers, so that these are soon sorted.
    fn are_apart(&self) -> bool {
        let mut jobs: Vec<i64> = self.verdicts.iter().map(|one| one.id.0).collect();
        jobs.sort_unstable();
        jobs.windows(2).all(|two| two[0] != two[1])
    }

    fn is_plain(&self) -> bool {
        self.verdicts.iter().all(|one| one.ending.is_plain())
    }
}

#[cfg(test)]
mod tests {
    use queue_core::{JobId, Verdict, runner::Ending};

    use super::*;
    use crate::lanes::LeaseRegistry;

    fn lease() -> Arc<LeaseGuard> {
        let holding = LeaseRegistry::default().begin();
        holding.expect(3);
        holding
    }

    fn said(holding: &Arc<LeaseGuard>, id: i64, over: bool) -> Settlement {
        let (token, holding, ending) = (holding.token(), Some(Arc::clone(holding)), Ending::new(Verdict::Complete, 1, None));
        Settlement { token, id: JobId(id), lane: 1, crashes: 0, batch: 3, over, ending, holding, attempt: None }
    }

    #[test]
    fn jobs_that_are_over_count_for_their_lease_and_are_not_written() {
        let (lease, mut unsettled) = (lease(), Unsettled::default());
        unsettled.extend([said(&lease, 1, true), said(&lease, 2, false)].into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole.len()), (1, 0), "one is out still");
        unsettled.extend([said(&lease, 3, false)].into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole[0].0, flush.whole[0].1.len()), (0, lease.token(), 1), "all that is left of it");
    }

    #[test]
    fn a_verdict_that_is_said_twice_does_not_stand_for_another_job() {
        let (lease, mut unsettled) = (lease(), Unsettled::default());
        unsettled.extend([1, 1, 2].map(|id| said(&lease, id, false)).into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole.len()), (3, 0), "the third of its jobs runs");
    }

    #[test]
    fn nothing_is_kept_of_a_lease_whose_other_jobs_have_no_verdict() {
        let (lease, mut unsettled) = (lease(), Unsettled::default());
        unsettled.extend([said(&lease, 1, false), said(&lease, 2, true)].into_iter());
        assert_eq!(unsettled.next_flush().verdicts.len(), 1);
        assert!(unsettled.is_empty() && unsettled.leases.is_empty(), "its worker may lose it, and then nobody sends the third");
        unsettled.extend([said(&lease, 3, true)].into_iter());
        assert!(unsettled.is_empty() && unsettled.leases.is_empty() && lease.unsent() == 0);
    }
}
