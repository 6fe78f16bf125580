//! Queue of claimers that wait for slots, ordered by priority. Among claimers of equal priority, the longest-waiting claimer is first.

use std::{
    cmp::Reverse,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// Handle that identifies a claimer in the claimer queues, and wakes the claimer.
#[derive(Clone, Debug)]
pub(crate) struct ClaimerHandle {
    id: u64,
    notify: Arc<Notify>,
}

/// Claimers that wait for the slots of one job queue.
#[derive(Default)]
pub(super) struct ClaimerQueue {
    waiting: Vec<WaitingClaimer>,
    /// Number of arrivals so far. Arrival numbers order claimers of equal priority.
    arrivals: u64,
}

struct WaitingClaimer {
    claimer: ClaimerHandle,
    priority: i32,
    /// Arrival number of the claimer. [`IN_FLIGHT`] while the claimer's claim is in flight.
    arrival: u64,
}

/// Arrival number of a claimer whose claim is in flight.
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
    /// Enqueues a claimer with the given priority, or updates the priority of a queued claimer. Returns whether the claimer is first.
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

    /// Records that a claimer was granted slots. The claimer is ordered behind all claimers of equal priority until it is enqueued again.
    pub(super) fn grant(&mut self, claimer: &ClaimerHandle) {
        if let Some(queued) = self.waiting.iter_mut().find(|waiting| waiting.claimer.id == claimer.id) {
            queued.arrival = IN_FLIGHT;
        }
    }

    pub(super) fn remove(&mut self, claimer: &ClaimerHandle) {
        self.waiting.retain(|waiting| waiting.claimer.id != claimer.id);
    }

    /// Returns the highest priority among all claimers except `claimer`.
    pub(super) fn max_priority_except(&self, claimer: &ClaimerHandle) -> Option<i32> {
        self.waiting.iter().filter(|waiting| waiting.claimer.id != claimer.id).map(|waiting| waiting.priority).max()
    }

    /// Wakes the first claimer, which then checks for free slots.
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
