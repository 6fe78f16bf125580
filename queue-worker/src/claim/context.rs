//! State shared by all claimers of a worker, and the transfer of claimed jobs to slots.

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

/// State shared by all claimers of a worker: store, queues, connections and leases.
pub(super) struct ClaimContext {
    pub(super) store: Store,
    /// Maximum number of jobs per claim.
    pub(super) batch: usize,
    pub(super) aging: Option<Duration>,
    pub(super) queues: Arc<Queues>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) identity: watch::Receiver<Identity>,
    /// Leases that still contain jobs without a written verdict.
    pub(super) held: LeaseRegistry,
    /// Limits for which a handler has requested a slow-down. A slow-down prevents new starts for a given duration.
    pub(super) slow_downs: Arc<SlowDowns>,
    /// Idle connections for claims without limits.
    pub(super) claims: Mutex<IdleConnections>,
    /// Idle connections for claims under limits, with a lock timeout of two seconds.
    pub(super) permits: Mutex<IdleConnections>,
    /// Semaphore that bounds the number of concurrent claims under limits.
    pub(super) limited_claims: Arc<Semaphore>,
    /// Whether normal claims are paused while quarantined jobs run.
    pub(super) is_quiet: AtomicBool,
    /// Number of jobs claimed since the poller last read this counter.
    pub(super) taken: AtomicUsize,
}

/// Maximum number of concurrent claims under limits per worker.
pub(super) const MAX_LIMITED_CLAIMS: usize = 6;

impl ClaimContext {
    /// Returns the identity under which the worker can claim jobs, or `None` if the worker is not registered.
    pub(super) fn worker(&self) -> Identity {
        *self.identity.borrow()
    }

    /// Passes claimed jobs to the slots of their queues. Releases jobs that must not start.
    pub(super) async fn hand_over(&self, worker: Uuid, reserved: &SlotReservations, batch: ClaimedBatch) {
        let ClaimedBatch { jobs: claimed, unread, .. } = batch;
        let by_queue = by_queue(claimed);
        let ours = self.worker() == Some(worker);
        let paused = self.queues.pauses().now().filter(|paused| !paused.is_nothing());
        for (queue, mut jobs) in by_queue {
            if let Some(promised) = reserved.get(&queue).filter(|_| ours) {
                if let Some(paused) = &paused {
                    for job in jobs.extract_if(.., |job| paused.stops(&queue, job.job.job_type, job.holding.limit_ids())) {
                        promised.slots.give_back(&job).await;
                    }
                }
                promised.push(jobs);
            } else if let Some(promised) = reserved.values().next().filter(|_| ours) {
                // The jobs' lanes no longer belong to the group, so the jobs are released.
                for job in &jobs {
                    promised.slots.give_back(job).await;
                }
            }
        }
        for job in &unread {
            // If the job's lane no longer belongs to the group, the job's queue is unknown. The slots of any queue can release such a
            // job.
            if let Some(promised) = reserved.get(&job.job.queue).or_else(|| reserved.values().next()).filter(|_| ours) {
                promised.slots.give_back(job).await;
            }
        }
        if ours && self.worker() != Some(worker) {
            // The worker lost its identity while jobs were passed to slots. Jobs that arrived after the slots were emptied must not
            // start.
            self.queues.abandon();
        }
    }

    /// Limits each lane's quota to the number of jobs whose payloads fit into one claim and into the free payload memory. Removes lanes
    /// with a quota of zero.
    pub(super) fn fit(&self, track: &LaneState, shares: &mut Vec<LaneQuota>) {
        let fits = track.sizes().fit(shares.iter().map(|share| (share.lane, share.most)), self.queues.payload_memory());
        for (share, most) in shares.iter_mut().zip(fits) {
            share.most = most;
        }
        shares.retain(|share| share.most > 0);
    }

    /// Reserves payload memory for the expected size of a claim. Returns `None` if the size is not known.
    pub(super) fn reserve_memory(&self, track: &LaneState, request: &ClaimRequest) -> Option<PayloadReservation> {
        let most = |share: &LaneQuota| track.sizes().weight(share.lane, share.most.min(request.most));
        let bytes = request.shares.iter().map(most).max().unwrap_or(0);
        (bytes > 0).then(|| self.queues.payload_memory().reserve(bytes))
    }

    /// Moves lanes that have waited longer than the aging limit to the front. Reduces the quota of each such lane to a tenth.
    pub(super) fn apply_aging(&self, track: &mut LaneState, shares: &mut [LaneQuota]) {
        let Some(aging) = self.aging else { return };
        shares.sort_by_cached_key(|share| !track.is_passed_over(share.lane, aging));
        for share in shares {
            if track.is_passed_over(share.lane, aging) {
                share.most = share.most.div_ceil(10);
            }
        }
    }

    /// Records which lanes a claim has served, if aging is enabled. A lane counts as served if the claim returned jobs from the lane, or if
    /// the claim reached the last lane.
    pub(super) fn record_served(&self, track: &mut LaneState, lanes: &[i64], reached_all: bool, served: impl Iterator<Item = i64>) {
        if self.aging.is_some() {
            let reached = if reached_all { lanes } else { &[] };
            track.record_served(reached.iter().copied().chain(served));
        }
    }
}

/// Locks the idle connections. Ignores poisoning, because a panic cannot leave the list of connections in an inconsistent state.
pub(super) fn lock(links: &Mutex<IdleConnections>) -> MutexGuard<'_, IdleConnections> {
    links.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Groups jobs by queue. The common case of a single queue needs no map.
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
