//! State shared by all claimers of a worker, and the hand-over of claimed jobs to slots.

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

use super::in_flight::{IdleConnections, SlotReservations};
use crate::{
    lanes::{ClaimRequest, ClaimedBatch, LaneQuota, LaneState, LeaseRegistry, LeasedJob, PayloadReservation},
    live::{Identity, Notifier, SlowDowns},
    run::Queues,
};

/// Store, queues, connections and leases that all claimers of a worker share.
pub(super) struct ClaimContext {
    pub(super) store: Store,
    /// Maximum number of jobs per claim.
    pub(super) batch: usize,
    pub(super) aging: Option<Duration>,
    pub(super) queues: Arc<Queues>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) identity: watch::Receiver<Identity>,
    /// Leases with verdicts that have not been written yet.
    pub(super) held: LeaseRegistry,
    /// Limits with a slow-down requested by a handler.
    pub(super) slow_downs: Arc<SlowDowns>,
    /// Connections for claims without limits (`claims`) and under limits (`permits`). The latter have a lock timeout of two seconds.
    pub(super) claims: Mutex<IdleConnections>,
    pub(super) permits: Mutex<IdleConnections>,
    /// Semaphore that bounds the number of claims under limits in flight.
    pub(super) limited_claims: Arc<Semaphore>,
    /// Whether normal claims are paused because of quarantined jobs.
    pub(super) is_quiet: AtomicBool,
    /// Number of jobs claimed since the poller last read this counter.
    pub(super) taken: AtomicUsize,
}

/// Maximum number of claims under limits in flight.
pub(super) const MAX_LIMITED_CLAIMS: usize = 6;

impl ClaimContext {
    /// Returns the identity under which the worker may claim, if any.
    pub(super) fn worker(&self) -> Identity {
        *self.identity.borrow()
    }

    /// Passes claimed jobs to the slots of their queues. Jobs that must not start are given back.
    pub(super) async fn hand_over(&self, worker: Uuid, reserved: &SlotReservations, batch: ClaimedBatch) {
        let ClaimedBatch { jobs: claimed, unread, .. } = batch;
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
                // The lanes of these jobs no longer belong to the group.
                for job in &jobs {
                    promised.slots.give_back(job).await;
                }
            }
        }
        for job in &unread {
            // The job's queue is unknown if its lane no longer belongs to the group.
            if let Some(promised) = reserved.get(&job.job.queue).or_else(|| reserved.values().next()).filter(|_| ours) {
                promised.slots.give_back(job).await;
            }
        }
        if ours && self.worker() != Some(worker) {
            // The identity was lost during the hand-over. Jobs pushed after the slots were emptied must not start.
            self.queues.abandon();
        }
    }

    /// Reduces each quota to what one claim may return and to what fits into the free payload memory. Lanes without room are removed.
    pub(super) fn fit(&self, track: &LaneState, shares: &mut Vec<LaneQuota>) {
        let fits = track.sizes().fit(shares.iter().map(|share| (share.lane, share.most)), self.queues.payload_memory());
        for (share, most) in shares.iter_mut().zip(fits) {
            share.most = most;
        }
        shares.retain(|share| share.most > 0);
    }

    /// Reserves payload memory for the expected size of a claim, if the size is known.
    pub(super) fn reserve_memory(&self, track: &LaneState, request: &ClaimRequest) -> Option<PayloadReservation> {
        let most = |share: &LaneQuota| track.sizes().weight(share.lane, share.most.min(request.most));
        let bytes = request.shares.iter().map(most).max().unwrap_or(0);
        (bytes > 0).then(|| self.queues.payload_memory().reserve(bytes))
    }

    /// Moves lanes that have waited longer than the aging limit to the front, and limits each of these lanes to a tenth of its slots.
    pub(super) fn apply_aging(&self, track: &mut LaneState, shares: &mut [LaneQuota]) {
        let Some(aging) = self.aging else { return };
        shares.sort_by_cached_key(|share| !track.is_passed_over(share.lane, aging));
        for share in shares {
            if track.is_passed_over(share.lane, aging) {
                share.most = share.most.div_ceil(10);
            }
        }
    }

    /// Records which lanes were served: the lanes that returned jobs, or all lanes if the claim reached the last one.
    pub(super) fn record_served(&self, track: &mut LaneState, lanes: &[i64], reached_all: bool, served: impl Iterator<Item = i64>) {
        if self.aging.is_some() {
            let reached = if reached_all { lanes } else { &[] };
            track.record_served(reached.iter().copied().chain(served));
        }
    }
}

/// Locks the idle connections. A poisoned lock stays usable, because no update under the lock can be left incomplete.
pub(super) fn lock(links: &Mutex<IdleConnections>) -> MutexGuard<'_, IdleConnections> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Groups jobs by queue. Fast path: most claims return jobs of a single queue.
fn by_queue(claimed: Vec<LeasedJob>) -> Vec<(Arc<str>, Vec<LeasedJob>)> {
    let Some(first) = claimed.first().map(|job| Arc::clone(&job.job.queue)) else { return Vec::new() };
    if claimed.iter().all(|job| Arc::ptr_eq(&job.job.queue, &first)) {
        return vec![(first, claimed)];
    }
    let mut by_queue: HashMap<Arc<str>, Vec<LeasedJob>> = HashMap::new();
    for job in claimed {
        by_queue.entry(Arc::clone(&job.job.queue)).or_default().push(job);
    }
    by_queue.into_iter().collect()
}
