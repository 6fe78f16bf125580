//! Queue of claimers that are waiting for slots, ordered by priority. Among claimers of equal priority, the longest waiting is first.

use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// Identity of a claimer in the queues of claimers, and the handle that wakes the claimer.
#[derive(Clone, Debug)]
pub(crate) struct ClaimerHandle {
    id: u64,
    notify: Arc<Notify>,
}

/// Queue of the claimers that are waiting for slots of one queue of jobs.
#[derive(Default)]
pub(super) struct ClaimerQueue {
    waiting: Vec<WaitingClaimer>,
    /// Number of arrivals so far. Arrival numbers order claimers of equal priority.
    arrivals: u64,
}

struct WaitingClaimer {
    claimer: ClaimerHandle,
    priority: i32,
    /// Arrival number of the claimer, or [`IN_FLIGHT`].
    arrival: u64,
}

/// Arrival number of a claimer that was granted slots and whose claim is in flight.
const IN_FLIGHT: u64 = u64::MAX;

impl PartialEq for ClaimerHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl ClaimerHandle {
    /// Creates a handle that wakes the claimer through `notify` when a slot may be free.
    pub(crate) fn new(notify: &Arc<Notify>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), notify: Arc::clone(notify) }
    }

    pub(super) fn wake(&self) {
        self.notify.notify_one();
    }
}

impl ClaimerQueue {
    /// Enqueues a claimer with the given priority, unless the claimer is already queued. Returns whether the claimer is first.
    pub(super) fn enqueue(&mut self, claimer: &ClaimerHandle, priority: i32) -> bool {
        if let Some(queued) = self.waiting.iter_mut().find(|waiting| waiting.claimer.id == claimer.id) {
            queued.priority = priority;
            if queued.arrival == IN_FLIGHT {
                self.arrivals += 1;
                queued.arrival = self.arrivals;
            }
        } else {
            self.arrivals += 1;
            self.waiting.push(WaitingClaimer { claimer: claimer.clone(), priority, arrival: self.arrivals });
        }
        self.first().is_some_and(|first| first.claimer.id == claimer.id)
    }

    /// Moves a claimer that was granted slots behind all claimers of equal priority, until it is enqueued again.
    pub(super) fn grant(&mut self, claimer: &ClaimerHandle) {
        if let Some(queued) = self.waiting.iter_mut().find(|waiting| waiting.claimer.id == claimer.id) {
            queued.arrival = IN_FLIGHT;
        }
    }

    /// Removes a claimer from the queue.
    pub(super) fn remove(&mut self, claimer: &ClaimerHandle) {
        self.waiting.retain(|waiting| waiting.claimer.id != claimer.id);
    }

    /// Returns the highest priority among the other claimers.
    pub(super) fn max_priority_except(&self, claimer: &ClaimerHandle) -> Option<i32> {
        self.waiting.iter().filter(|waiting| waiting.claimer.id != claimer.id).map(|waiting| waiting.priority).max()
    }

    /// Wakes the first claimer, because a slot may be free.
    pub(super) fn wake_first(&self) {
        if let Some(first) = self.first() {
            first.claimer.wake();
        }
    }

    fn first(&self) -> Option<&WaitingClaimer> {
        self.waiting.iter().max_by_key(|waiting| (waiting.priority, Reverse(waiting.arrival)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_priority_goes_first_and_equals_alternate() {
        let mut queue = ClaimerQueue::default();
        let [a, b, c] = std::array::from_fn(|_| ClaimerHandle::new(&Arc::default()));
        assert!(queue.enqueue(&a, 100) && !queue.enqueue(&b, 100) && queue.enqueue(&c, 200));
        queue.remove(&c);
        assert!(queue.enqueue(&a, 100) && !queue.enqueue(&b, 100));
        queue.grant(&a);
        assert!(queue.enqueue(&b, 100) && !queue.enqueue(&a, 100), "after a grant the other is first");
        let late = ClaimerHandle::new(&Arc::default());
        queue.grant(&b);
        assert!(queue.enqueue(&a, 100) && !queue.enqueue(&late, 100), "then the first again");
        queue.grant(&a);
        assert!(queue.enqueue(&late, 100), "a waiting claimer goes before both in flight");
        queue.remove(&late);
        assert!(queue.enqueue(&b, 100) && !queue.enqueue(&a, 100));
        assert_eq!((queue.max_priority_except(&a), queue.max_priority_except(&c)), (Some(100), Some(100)));
        assert!(queue.enqueue(&a, 150) && !queue.enqueue(&b, 100), "its priority has risen");
        queue.remove(&b);
        assert_eq!(queue.max_priority_except(&a), None);
    }
}
