//! Who wants slots of a queue: the highest priority goes first, and among equals the one that has waited longest.

use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// One that claims, as a line knows it.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    id: u64,
    notify: Arc<Notify>,
}

/// A line for the slots of one queue.
#[derive(Default)]
pub(super) struct Line {
    waiters: Vec<Waiter>,
    /// Counts those that came, so that of equals the first is known.
    turn: u64,
}

struct Waiter {
    who: Claimant,
    priority: i32,
    since: u64,
}

/// Its claim has not come back.
const BEING_SERVED: u64 = u64::MAX;

impl PartialEq for Claimant {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Claimant {
    /// Whom this wakes once a slot may be free.
    pub(crate) fn new(notify: &Arc<Notify>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), notify: Arc::clone(notify) }
    }

    pub(super) fn wake(&self) {
        self.notify.notify_one();
    }
}

impl Line {
    /// Puts it in the line with this priority, unless it stands there already; returns whether it is the first.
    pub(super) fn stand(&mut self, who: &Claimant, priority: i32) -> bool {
        if let Some(known) = self.waiters.iter_mut().find(|waiter| waiter.who.id == who.id) {
            known.priority = priority;
            if known.since == BEING_SERVED {
                self.turn += 1;
                known.since = self.turn;
            }
        } else {
            self.turn += 1;
            self.waiters.push(Waiter { who: who.clone(), priority, since: self.turn });
        }
        self.first().is_some_and(|first| first.who.id == who.id)
    }

    /// It was granted slots, and goes behind its equals until it asks for more.
    pub(super) fn served(&mut self, who: &Claimant) {
        if let Some(known) = self.waiters.iter_mut().find(|waiter| waiter.who.id == who.id) {
            known.since = BEING_SERVED;
        }
    }

    /// It wants no more.
    pub(super) fn leave(&mut self, who: &Claimant) {
        self.waiters.retain(|waiter| waiter.who.id != who.id);
    }

    /// The highest priority of others.
    pub(super) fn best_other(&self, who: &Claimant) -> Option<i32> {
        self.waiters.iter().filter(|waiter| waiter.who.id != who.id).map(|waiter| waiter.priority).max()
    }

    /// Tells the first that there may be a slot.
    pub(super) fn wake_first(&self) {
        if let Some(first) = self.first() {
            first.who.wake();
        }
    }

    fn first(&self) -> Option<&Waiter> {
        self.waiters.iter().max_by_key(|waiter| (waiter.priority, Reverse(waiter.since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_goes_first_and_equals_take_turns() {
        let mut line = Line::default();
        let [a, b, c] = std::array::from_fn(|_| Claimant::new(&Arc::default()));
        assert!(line.stand(&a, 100) && !line.stand(&b, 100) && line.stand(&c, 200));
        line.leave(&c);
        assert!(line.stand(&a, 100) && !line.stand(&b, 100));
        line.served(&a);
        assert!(line.stand(&b, 100) && !line.stand(&a, 100), "it was served, so the other is next");
        let late = Claimant::new(&Arc::default());
        line.served(&b);
        assert!(line.stand(&a, 100) && !line.stand(&late, 100), "and then the first");
        line.served(&a);
        assert!(line.stand(&late, 100), "those that wait go before both that are served");
        line.leave(&late);
        assert!(line.stand(&b, 100) && !line.stand(&a, 100));
        assert_eq!((line.best_other(&a), line.best_other(&c)), (Some(100), Some(100)));
        assert!(line.stand(&a, 150) && !line.stand(&b, 100), "it expects better ones now");
        line.leave(&b);
        assert_eq!(line.best_other(&a), None);
    }
}
