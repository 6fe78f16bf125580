//! What all claimers of a worker have in common: the slots, who the worker is, and how jobs are handed over.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
};

use queue_core::Store;
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;

use super::flight::{Links, Reserved};
use crate::{
    lanes::{Brought, Claimed, InHand, KnownLeases, Request, Share, Track},
    live::{Bell, Identity, Slowed},
    run::Queues,
};

/// What all claimers of a worker have in common.
pub(super) struct ClaimContext {
    pub(super) store: Store,
    /// The most jobs of one claim.
    pub(super) batch: usize,
    pub(super) aging: Option<Duration>,
    pub(super) queues: Arc<Queues>,
    pub(super) bell: Arc<Bell>,
    pub(super) identity: watch::Receiver<Identity>,
    /// The leases whose verdicts are not all written yet.
    pub(super) held: KnownLeases,
    /// Where handlers were told to slow down.
    pub(super) slowed: Arc<Slowed>,
    /// Links for claims: without limits, and under some, which wait for a lock no longer than two seconds.
    pub(super) claims: Mutex<Links>,
    pub(super) permits: Mutex<Links>,
    /// Leave to send a claim under limits.
    pub(super) flights: Arc<Semaphore>,
    /// Nothing else is claimed while suspects are tried.
    pub(super) is_quiet: AtomicBool,
    /// How many jobs claimers have brought that the scout does not know of.
    pub(super) taken: AtomicUsize,
}

/// How many claims under limits are on their way at once.
pub(super) const FLIGHTS: usize = 6;

impl ClaimContext {
    /// Who the worker is, as far as it may claim.
    pub(super) fn worker(&self) -> Identity {
        *self.identity.borrow()
    }

    /// Gives what a claim brought to the slots, and back what must not begin.
    pub(super) async fn hand_over(&self, worker: Uuid, reserved: &Reserved, brought: Brought) {
        let Brought { jobs: claimed, unread, .. } = brought;
        let by_queue = by_queue(claimed);
        let ours = self.worker() == Some(worker);
        let paused = self.queues.pauses().now().filter(|paused| !paused.is_nothing());
        for (queue, mut jobs) in by_queue {
            if let Some(promised) = reserved.get(&queue).filter(|_| ours) {
                if let Some(paused) = &paused {
                    for job in jobs.extract_if(.., |job| paused.stops(&queue, job.job.job_type, job.holding.gates())) {
                        promised.slots.give_back(&job).await;
                    }
                }
                promised.push(jobs);
            } else if let Some(promised) = reserved.values().next().filter(|_| ours) {
                // Their lane is not claimed from here any more.
                for job in &jobs {
                    promised.slots.give_back(job).await;
                }
            }
        }
        for job in &unread {
            // Of a lane that is not claimed from here any more the queue is not known.
            if let Some(promised) = reserved.get(&job.job.queue).or_else(|| reserved.values().next()).filter(|_| ours) {
                promised.slots.give_back(job).await;
            }
        }
        if ours && self.worker() != Some(worker) {
            // Lost between the question and the push: what ran here may have been dropped before that.
            self.queues.abandon();
        }
    }

    /// Asks for no more of each lane than one claim may bring, and than there is room for in hand. What has no room is left out.
    pub(super) fn fit(&self, track: &Track, shares: &mut Vec<Share>) {
        let fits = track.sizes().fit(shares.iter().map(|share| (share.lane, share.most)), self.queues.hand());
        for (share, most) in shares.iter_mut().zip(fits) {
            share.most = most;
        }
        shares.retain(|share| share.most > 0);
    }

    /// Counts in what a claim will bring, as far as that is known.
    pub(super) fn weigh(&self, track: &Track, request: &Request) -> Option<InHand> {
        let most = |share: &Share| track.sizes().weight(share.lane, share.most.min(request.most));
        let bytes = request.shares.iter().map(most).max().unwrap_or(0);
        (bytes > 0).then(|| self.queues.hand().reserve(bytes))
    }

    /// Lanes that better ones have kept waiting too long go first, for a tenth of the slots.
    pub(super) fn let_age(&self, track: &mut Track, shares: &mut [Share]) {
        let Some(aging) = self.aging else { return };
        shares.sort_by_cached_key(|share| !track.is_passed_over(share.lane, aging));
        for share in shares {
            if track.is_passed_over(share.lane, aging) {
                share.most = share.most.div_ceil(10);
            }
        }
    }

    /// Lanes from which jobs came have had their turn; all of these, if a claim came to the last one.
    pub(super) fn note_served(&self, track: &mut Track, lanes: &[i64], reached_all: bool, served: impl Iterator<Item = i64>) {
        if self.aging.is_some() {
            let reached = if reached_all { lanes } else { &[] };
            track.served(reached.iter().copied().chain(served));
        }
    }
}

/// Nothing is half-written under this lock, so that one which a panic left poisoned is as good as any.
pub(super) fn open(links: &Mutex<Links>) -> MutexGuard<'_, Links> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most claims are of one queue, and stay as they are.
fn by_queue(claimed: Vec<Claimed>) -> Vec<(Arc<str>, Vec<Claimed>)> {
    let Some(first) = claimed.first().map(|job| Arc::clone(&job.job.queue)) else { return Vec::new() };
    if claimed.iter().all(|job| Arc::ptr_eq(&job.job.queue, &first)) {
        return vec![(first, claimed)];
    }
    let mut by_queue: HashMap<Arc<str>, Vec<Claimed>> = HashMap::new();
    for job in claimed {
        by_queue.entry(Arc::clone(&job.job.queue)).or_default().push(job);
    }
    by_queue.into_iter().collect()
}
