//! The places at which an attempt may be interrupted: where its future waits, and where something that it kept is behind it.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

/// A handler with more places is not tested to its end within a test's time.
pub(super) const MOST: usize = 2000;

/// The places, counted through all attempts of a job.
#[derive(Debug)]
pub(super) struct Points {
    /// The one at which it is interrupted; none is number 0.
    at: usize,
    seen: AtomicUsize,
}

impl Points {
    pub(super) fn new(at: usize) -> Self {
        Self { at, seen: AtomicUsize::new(0) }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn seen(&self) -> usize {
        self.seen.load(Relaxed)
    }

    pub(super) fn has_cut(&self) -> bool {
        self.at > 0 && self.seen() >= self.at
    }

    /// Whether there were too many since the interruption, or at all: it is left for good.
    pub(super) fn are_too_many(&self) -> bool {
        self.seen() > self.at + MOST
    }

    /// At the next place; returns whether the attempt is left there.
    pub(super) fn pass(&self) -> bool {
        let place = self.seen.fetch_add(1, Relaxed) + 1;
        place == self.at || self.are_too_many()
    }

    /// The work's output, or nothing if it is interrupted. It is dropped with the future that is returned. `kept` counts what it has kept so far.
    pub(super) async fn through<F: Future>(&self, work: F, kept: impl Fn() -> usize) -> Option<F::Output> {
        let (mut work, mut known) = (pin!(work), kept());
        let interrupted = |task: &mut std::task::Context<'_>| {
            // What it kept since is in the store, and it does not know.
            if kept() != known {
                known = kept();
                if self.pass() {
                    return Poll::Ready(None);
                }
            }
            match work.as_mut().poll(task) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if self.pass() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        };
        poll_fn(interrupted).await
    }
}
