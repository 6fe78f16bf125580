//! The places at which an attempt may be interrupted: where its future waits, where something that it kept is behind it, and where it has returned.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

/// A handler with more places is not tested to its end within a test's time.
pub(super) const MOST: usize = 2000;

/// A place at which [`interrupt_everywhere`](super::interrupt_everywhere) interrupts a job. Each kind is counted apart, from 1 on, through all
/// attempts: how often a statement waits for its answer differs from run to run, and what the handler writes does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Where it waits for the nth time.
    Wait(usize),
    /// Right behind the nth thing that was written for it, a checkpoint, a step, a commit; it does not know of it yet.
    Written(usize),
    /// The handler has returned for the nth time, and nobody has written its verdict.
    Returned(usize),
}

impl Place {
    /// The first of each kind.
    pub(super) const KINDS: [Self; 3] = [Self::Wait(1), Self::Written(1), Self::Returned(1)];

    pub(super) fn number(self) -> usize {
        match self {
            Self::Wait(n) | Self::Written(n) | Self::Returned(n) => n,
        }
    }

    /// The next of its kind.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Wait(n) => Self::Wait(n + 1),
            Self::Written(n) => Self::Written(n + 1),
            Self::Returned(n) => Self::Returned(n + 1),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(n) => write!(f, "wait {n}"),
            Self::Written(n) => write!(f, "write {n}, right behind it"),
            Self::Returned(n) => write!(f, "return {n}"),
        }
    }
}

/// Where it was, for messages.
pub(super) fn shown(at: Option<Place>) -> String {
    at.map_or_else(|| "nowhere".to_owned(), |at| format!("at {at}"))
}

/// The places, counted through all attempts of a job.
#[derive(Debug)]
pub(super) struct Points {
    /// The one at which it is interrupted.
    at: Option<Place>,
    waits: AtomicUsize,
    written: AtomicUsize,
    returned: AtomicUsize,
    /// How many of all were seen when it was interrupted.
    cut: AtomicUsize,
}

impl Points {
    pub(super) fn new(at: Option<Place>) -> Self {
        let (waits, written, returned, cut) = Default::default();
        Self { at, waits, written, returned, cut }
    }

    pub(super) fn at(&self) -> Option<Place> {
        self.at
    }

    fn seen(&self) -> usize {
        Place::KINDS.into_iter().map(|kind| self.seen_of(kind)).sum()
    }

    /// How many of this kind it has come to.
    pub(super) fn seen_of(&self, kind: Place) -> usize {
        match kind {
            Place::Wait(_) => self.waits.load(Relaxed),
            Place::Written(_) => self.written.load(Relaxed),
            Place::Returned(_) => self.returned.load(Relaxed),
        }
    }

    pub(super) fn has_cut(&self) -> bool {
        self.cut.load(Relaxed) > 0
    }

    /// Whether there were too many since the interruption, or at all: it is left for good.
    pub(super) fn are_too_many(&self) -> bool {
        self.seen() > self.cut.load(Relaxed) + MOST
    }

    fn waits(&self) -> bool {
        self.waits.fetch_add(1, Relaxed);
        self.cuts(Place::Wait(self.waits.load(Relaxed)))
    }

    fn has_written(&self) -> bool {
        self.written.fetch_add(1, Relaxed);
        self.cuts(Place::Written(self.written.load(Relaxed)))
    }

    /// At the end of an attempt; returns whether its verdict is lost.
    pub(super) fn has_returned(&self) -> bool {
        self.returned.fetch_add(1, Relaxed);
        self.cuts(Place::Returned(self.returned.load(Relaxed)))
    }

    /// Whether the attempt is left here.
    fn cuts(&self, place: Place) -> bool {
        if self.at == Some(place) {
            self.cut.store(self.seen(), Relaxed);
            return true;
        }
        self.are_too_many()
    }

    /// The work's output, or nothing if it is interrupted. It is dropped with the future that is returned. `kept` counts what it has kept so far.
    pub(super) async fn through<F: Future>(&self, work: F, kept: impl Fn() -> usize) -> Option<F::Output> {
        let (mut work, mut known) = (pin!(work), kept());
        let interrupted = |task: &mut std::task::Context<'_>| {
            // What it kept since is in the store, and it does not know.
            if kept() != known {
                known = kept();
                if self.has_written() {
                    return Poll::Ready(None);
                }
            }
            match work.as_mut().poll(task) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if self.waits() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        };
        poll_fn(interrupted).await
    }
}
