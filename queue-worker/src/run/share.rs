//! Slots that many stores share: so many handlers run at once over all of them. What is free goes to the store that has fewest running, and among
//! those to the one that waits longest, so that a busy store takes what others leave and keeps nobody waiting but for what runs. No database.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// The slots of all stores.
#[derive(Clone)]
pub(crate) struct Shares(Arc<All>);

struct All {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    stores: BTreeMap<u64, One>,
    /// Counts what was granted.
    turn: u64,
}

/// One store.
#[derive(Default)]
struct One {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// When something was granted it last.
    granted: u64,
}

/// One store's part.
#[derive(Clone)]
pub(crate) struct Share {
    all: Shares,
    store: u64,
}

/// Leave to run one handler, until it is dropped.
pub(crate) struct Permit(Option<Share>);

impl Shares {
    /// So many handlers at once.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(All { most, state: Mutex::default() }))
    }

    /// The part of this store.
    pub(crate) fn of(&self, store: u64) -> Share {
        Share { all: self.clone(), store }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Waits for a slot.
    pub(crate) async fn enter(&self) -> Permit {
        let waits = {
            let mut state = self.all.state();
            let is_free = state.taken < self.all.0.most;
            state.turn += u64::from(is_free);
            let (turn, store) = (state.turn, state.stores.entry(self.store).or_default());
            if is_free {
                (store.running, store.granted) = (store.running + 1, turn);
                state.taken += 1;
                return Permit(Some(self.clone()));
            }
            let (grant, waits) = oneshot::channel();
            store.waiting.push_back(grant);
            waits
        };
        // Whoever would grant it lives as long as this.
        waits.await.unwrap_or(Permit(None))
    }

    /// How many jobs of this store may run or wait to: what it has and what is free. Where nothing is free, one more as long as it has less than its part
    /// of all, which is next then: what waits here nobody else can run.
    pub(crate) fn most(&self) -> usize {
        let (most, state) = (self.all.0.most, self.all.state());
        let others =
            state.stores.iter().filter(|(store, one)| **store != self.store && (one.running > 0 || !one.waiting.is_empty())).count();
        let running = state.stores.get(&self.store).map_or(0, |one| one.running);
        (running + most.saturating_sub(state.taken)).max((running + 1).min(most / (others + 1))).max(1)
    }

    fn leave(&self) {
        let mut state = self.all.state();
        if let Some(one) = state.stores.get_mut(&self.store) {
            one.running -= 1;
        }
        // Those that have gone meanwhile are passed over.
        loop {
            let waiting = state.stores.iter().filter(|(_, one)| !one.waiting.is_empty());
            let Some(next) = waiting.min_by_key(|(_, one)| (one.running, one.granted)).map(|(store, _)| *store) else { break };
            state.turn += 1;
            let turn = state.turn;
            let Some(one) = state.stores.get_mut(&next) else { break };
            let Some(grant) = one.waiting.pop_front() else { break };
            match grant.send(Permit(Some(Self { all: self.all.clone(), store: next }))) {
                Ok(()) => {
                    (one.running, one.granted) = (one.running + 1, turn);
                    return;
                }
                // It takes none back.
                Err(mut refused) => drop(refused.0.take()),
            }
        }
        state.taken -= 1;
        state.stores.retain(|_, one| one.running > 0 || !one.waiting.is_empty());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(share) = self.0.take() {
            share.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn enters(share: &Share) -> Option<Permit> {
        tokio::time::timeout(Duration::from_millis(20), share.enter()).await.ok()
    }

    #[tokio::test]
    async fn a_store_takes_all_that_others_leave() {
        let shares = Shares::new(3);
        let (busy, other) = (shares.of(1), shares.of(2));
        let mut held = Vec::new();
        for _ in 0..3 {
            assert!(busy.most() >= 3);
            held.push(enters(&busy).await.unwrap());
        }
        assert!(enters(&busy).await.is_none() && enters(&other).await.is_none());
        assert_eq!((busy.most(), other.most()), (3, 1), "one may always wait");
        drop(held);
        assert_eq!(shares.state().taken, 0);
        assert!(shares.state().stores.is_empty(), "nothing is kept of a store that runs nothing");
    }

    #[tokio::test]
    async fn what_is_free_goes_to_the_store_that_runs_least_and_then_to_who_waits_longest() {
        let shares = Shares::new(2);
        let (busy, small, late) = (shares.of(1), shares.of(2), shares.of(3));
        let (first, second) = (busy.enter().await, busy.enter().await);
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (name, share) in [("busy", &busy), ("busy", &busy), ("small", &small), ("late", &late), ("small", &small)] {
            let (share, told) = (share.clone(), told.clone());
            tokio::spawn(async move {
                let permit = share.enter().await;
                told.send((name, permit)).map_err(drop).unwrap();
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
    async fn who_waits_no_longer_takes_nothing() {
        let shares = Shares::new(1);
        let held = shares.of(1).enter().await;
        assert!(enters(&shares.of(2)).await.is_none());
        drop(held);
        assert!(enters(&shares.of(3)).await.is_some());
        assert_eq!(shares.state().taken, 0);
    }
}
