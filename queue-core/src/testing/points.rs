//! The places at which an attempt may be interrupted: the awaits of its future that wait.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

/// The places at which an attempt may be interrupted, counted through all attempts of a job.
#[derive(Debug)]
pub(super) struct Points {
    /// The one at which it is; none is number 0.
    at: usize,
    seen: AtomicUsize,
}

impl Points {
    pub(super) fn new(at: usize) -> Self {
        Self { at, seen: AtomicUsize::new(0) }
    }

    pub(super) fn seen(&self) -> usize {
        self.seen.load(Relaxed)
    }

    pub(super) fn has_cut(&self) -> bool {
        self.at > 0 && self.seen() >= self.at
    }

    /// At the next place; returns whether it is interrupted there.
    pub(super) fn pass(&self) -> bool {
        self.seen.fetch_add(1, Relaxed) + 1 == self.at
    }

    /// The work's output, or nothing if it is interrupted. It is dropped with the future that is returned.
    pub(super) async fn through<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let interrupted = |task: &mut std::task::Context<'_>| match work.as_mut().poll(task) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.pass() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        };
        std::future::poll_fn(interrupted).await
    }
}
