//! How many loops there are for transactional jobs, and how many of them have one: they are slots as well, beside those of the queues.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The loops of a worker, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hands(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: AtomicUsize,
    busy: AtomicUsize,
}

impl Hands {
    /// So many more loops.
    pub(super) fn hire(&self, loops: usize) {
        self.0.all.fetch_add(loops, Relaxed);
    }

    /// Counts one loop as busy until that is dropped.
    pub(super) fn begin(&self) -> Busy<'_> {
        self.0.busy.fetch_add(1, Relaxed);
        Busy(&self.0.busy)
    }

    pub(super) fn all(&self) -> usize {
        self.0.all.load(Relaxed)
    }

    pub(super) fn busy(&self) -> usize {
        self.0.busy.load(Relaxed)
    }
}

/// A loop that has a job.
pub(super) struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
