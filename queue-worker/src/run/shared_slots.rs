//! Shared slots that limit the number of concurrent handlers across all stores. This module does not access the database.
//!
//! A free slot goes to the waiting store with the fewest running handlers. Among stores with equally many running handlers, the slot goes
//! to the store whose last grant is oldest. A busy store can use all slots that other stores leave free. Other stores then wait only
//! until one of the busy store's handlers ends.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Slots shared by all stores of a process.
#[derive(Clone)]
pub(crate) struct SharedSlots(Arc<SlotPool>);

struct SlotPool {
    max_running: usize,
    state: Mutex<SlotPoolState>,
}

#[derive(Default)]
struct SlotPoolState {
    running: usize,
    stores: BTreeMap<u64, StoreUsage>,
    /// Number of grants so far, across all stores.
    grants: u64,
}

/// Slots that one store uses or waits for.
#[derive(Default)]
struct StoreUsage {
    running: usize,
    waiting: VecDeque<oneshot::Sender<SlotPermit>>,
    /// Value of `grants` at the store's last grant.
    last_grant: u64,
}

/// One store's handle to the shared slots.
#[derive(Clone)]
pub(crate) struct StoreSlots {
    shared: SharedSlots,
    store: u64,
}

/// Permit to run one handler. The slot is freed when the permit is dropped.
pub(crate) struct SlotPermit(Option<StoreSlots>);

impl SharedSlots {
    /// Creates slots for up to `max_running` concurrent handlers.
    pub(crate) fn new(max_running: usize) -> Self {
        Self(Arc::new(SlotPool { max_running, state: Mutex::default() }))
    }

    /// Returns the handle for the store with this number.
    pub(crate) fn of(&self, store: u64) -> StoreSlots {
        StoreSlots { shared: self.clone(), store }
    }

    fn state(&self) -> MutexGuard<'_, SlotPoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreSlots {
    /// Waits for a free slot and returns its permit.
    pub(crate) async fn acquire(&self) -> SlotPermit {
        let granted = {
            let mut state = self.shared.state();
            let is_free = state.running < self.shared.0.max_running;
            state.grants += u64::from(is_free);
            let (grant, store) = (state.grants, state.stores.entry(self.store).or_default());
            if is_free {
                (store.running, store.last_grant) = (store.running + 1, grant);
                state.running += 1;
                return SlotPermit(Some(self.clone()));
            }
            let (sender, granted) = oneshot::channel();
            store.waiting.push_back(sender);
            granted
        };
        // The sender is stored in state that `self` keeps alive, so the channel is never closed without a permit.
        granted.await.unwrap_or(SlotPermit(None))
    }

    /// Returns the maximum number of this store's running and waiting jobs: the running handlers plus the free slots.
    ///
    /// If no slot is free, a store below its fair share may have one waiting job, because the next free slot goes to that store. Further
    /// waiting jobs would be unavailable to other workers.
    pub(crate) fn max_jobs(&self) -> usize {
        let (max_running, state) = (self.shared.0.max_running, self.shared.state());
        let is_active = |usage: &StoreUsage| usage.running > 0 || !usage.waiting.is_empty();
        let others = state.stores.iter().filter(|(store, usage)| **store != self.store && is_active(usage)).count();
        let running = state.stores.get(&self.store).map_or(0, |usage| usage.running);
        (running + max_running.saturating_sub(state.running)).max((running + 1).min(max_running / (others + 1))).max(1)
    }

    fn release(&self) {
        let mut state = self.shared.state();
        if let Some(usage) = state.stores.get_mut(&self.store) {
            usage.running -= 1;
        }
        // Passes the slot to the next waiter. Waiters that have been dropped are skipped.
        loop {
            let waiting = state.stores.iter().filter(|(_, usage)| !usage.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|(_, usage)| (usage.running, usage.last_grant)).map(|(store, _)| *store) else { break };
            state.grants += 1;
            let grant = state.grants;
            let Some(usage) = state.stores.get_mut(&next) else { break };
            let Some(sender) = usage.waiting.pop_front() else { break };
            match sender.send(SlotPermit(Some(Self { shared: self.shared.clone(), store: next }))) {
                Ok(()) => {
                    (usage.running, usage.last_grant) = (usage.running + 1, grant);
                    return;
                }
                // The unsent permit is emptied before it is dropped. Otherwise, the drop would call `release` again while the state is
                // locked.
                Err(mut unsent) => drop(unsent.0.take()),
            }
        }
        state.running -= 1;
        state.stores.retain(|_, usage| usage.running > 0 || !usage.waiting.is_empty());
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn try_acquire(slots: &StoreSlots) -> Option<SlotPermit> {
        tokio::time::timeout(Duration::from_millis(20), slots.acquire()).await.ok()
    }

    #[tokio::test]
    async fn a_store_uses_all_slots_that_others_leave_free() {
        let shared = SharedSlots::new(3);
        let (busy, other) = (shared.of(1), shared.of(2));
        let mut permits = Vec::new();
        for _ in 0..3 {
            assert!(busy.max_jobs() >= 3);
            permits.push(try_acquire(&busy).await.unwrap());
        }
        assert!(try_acquire(&busy).await.is_none() && try_acquire(&other).await.is_none());
        assert_eq!((busy.max_jobs(), other.max_jobs()), (3, 1), "one job may always wait");
        drop(permits);
        assert_eq!(shared.state().running, 0);
        assert!(shared.state().stores.is_empty(), "no state remains of an idle store");
    }

    #[tokio::test]
    async fn a_free_slot_goes_to_the_store_with_fewest_running_then_to_the_longest_waiting() {
        let shared = SharedSlots::new(2);
        let (busy, small, late) = (shared.of(1), shared.of(2), shared.of(3));
        let (first, second) = (busy.acquire().await, busy.acquire().await);
        let (granted, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (name, slots) in [("busy", &busy), ("busy", &busy), ("small", &small), ("late", &late), ("small", &small)] {
            let (slots, granted) = (slots.clone(), granted.clone());
            tokio::spawn(async move {
                let permit = slots.acquire().await;
                granted.send((name, permit)).map_err(drop).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        let (name, permit) = order.recv().await.unwrap();
        assert_eq!(name, "small");
        drop(second);
        let (name, other) = order.recv().await.unwrap();
        assert_eq!(name, "late");
        drop((permit, other));
        let names = [order.recv().await.unwrap(), order.recv().await.unwrap()];
        assert_eq!(names.each_ref().map(|(name, _)| *name), ["busy", "small"]);
    }

    #[tokio::test]
    async fn a_dropped_waiter_takes_no_slot() {
        let shared = SharedSlots::new(1);
        let permit = shared.of(1).acquire().await;
        assert!(try_acquire(&shared.of(2)).await.is_none());
        drop(permit);
        assert!(try_acquire(&shared.of(3)).await.is_some());
        assert_eq!(shared.state().running, 0);
    }
}
