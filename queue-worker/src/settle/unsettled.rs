//! What is to be settled next: verdicts by lease.

use std::collections::HashMap;

use uuid::Uuid;

use super::settlement::Settlement;

/// Verdicts by lease, so that one which completed as a whole is settled by its token alone.
#[derive(Default)]
pub(super) struct Unsettled {
    leases: HashMap<Uuid, Unfinished>,
    waiting: usize,
}

struct Unfinished {
    /// How many of its jobs have not been flushed.
    left: usize,
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
            let fresh = || Unfinished { left: one.batch, verdicts: Vec::with_capacity(one.batch), passed_over: 0 };
            let lease = self.leases.entry(one.token).or_insert_with(fresh);
            if !one.over {
                lease.verdicts.push(one);
                self.waiting += 1;
                continue;
            }
            // Only counted: the lease does not list it any more, so what is left of it may be settled as a whole.
            lease.left = lease.left.saturating_sub(1);
            if lease.left == 0 && lease.verdicts.is_empty() {
                self.leases.remove(&one.token);
            }
        }
    }

    /// Takes what to flush now. While whole leases keep coming, one that is nearly finished is passed over twice, in the hope that it will be
    /// whole: that saves an update of its row. With nothing else to do everything goes at once, so this never adds a wait.
    pub(super) fn next_flush(&mut self) -> Flush {
        let mut flush = Flush::default();
        let any_whole = self.leases.values().any(Unfinished::is_whole);
        self.leases.retain(|token, lease| {
            if lease.is_whole() {
                self.waiting -= lease.verdicts.len();
                flush.whole.push((*token, std::mem::take(&mut lease.verdicts)));
                return false;
            }
            if lease.verdicts.is_empty() || (any_whole && lease.is_plain() && lease.passed_over < 2) {
                lease.passed_over += u8::from(!lease.verdicts.is_empty());
                return true;
            }
            self.waiting -= lease.verdicts.len();
            lease.left = lease.left.saturating_sub(lease.verdicts.len());
            lease.passed_over = 0;
            flush.verdicts.append(&mut lease.verdicts);
            lease.left > 0
        });
        flush
    }
}

impl Unfinished {
    /// As many verdicts as jobs, each of another job: one said twice would pass for that of a job that still runs.
    fn is_whole(&self) -> bool {
        self.left == self.verdicts.len() && self.is_plain() && self.are_apart()
    }

    /// They come about in the order of their numbers, so that these are soon sorted.
    fn are_apart(&self) -> bool {
        let mut jobs: Vec<i64> = self.verdicts.iter().map(|one| one.id.0).collect();
        jobs.sort_unstable();
        jobs.windows(2).all(|two| two[0] != two[1])
    }

    fn is_plain(&self) -> bool {
        self.left > 0 && self.verdicts.iter().all(|one| one.ending.is_plain())
    }
}

#[cfg(test)]
mod tests {
    use queue_core::{JobId, Verdict, runner::Ending};

    use super::*;

    fn said(token: Uuid, id: i64, over: bool) -> Settlement {
        let ending = Ending::new(Verdict::Complete, 1, None);
        Settlement { token, id: JobId(id), lane: 1, crashes: 0, batch: 3, over, ending, holding: None, attempt: None }
    }

    #[test]
    fn jobs_that_are_over_count_for_their_lease_and_are_not_written() {
        let (token, mut unsettled) = (Uuid::new_v4(), Unsettled::default());
        unsettled.extend([said(token, 1, true), said(token, 2, false)].into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole.len()), (1, 0), "one is out still");
        unsettled.extend([said(token, 3, false)].into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole[0].0, flush.whole[0].1.len()), (0, token, 1), "all that is left of it");
        assert!(unsettled.leases.is_empty());
    }

    #[test]
    fn a_verdict_that_is_said_twice_does_not_stand_for_another_job() {
        let (token, mut unsettled) = (Uuid::new_v4(), Unsettled::default());
        unsettled.extend([1, 1, 2].map(|id| said(token, id, false)).into_iter());
        let flush = unsettled.next_flush();
        assert_eq!((flush.verdicts.len(), flush.whole.len()), (3, 0), "the third of its jobs runs");
    }

    #[test]
    fn a_lease_whose_jobs_are_all_over_is_forgotten() {
        let (token, mut unsettled) = (Uuid::new_v4(), Unsettled::default());
        unsettled.extend((0..3).map(|id| said(token, id, true)));
        assert!(unsettled.is_empty() && unsettled.leases.is_empty());
    }

    #[test]
    fn the_last_job_that_is_over_may_come_after_the_others_were_written() {
        let (token, mut unsettled) = (Uuid::new_v4(), Unsettled::default());
        unsettled.extend([said(token, 1, false), said(token, 2, false)].into_iter());
        assert_eq!(unsettled.next_flush().verdicts.len(), 2);
        unsettled.extend([said(token, 3, true)].into_iter());
        assert!(unsettled.is_empty() && unsettled.leases.is_empty());
    }
}
