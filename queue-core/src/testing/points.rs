//! Places where an attempt can be interrupted: while its future is pending, right after a write, and after the handler has returned.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

/// Maximum number of places that a run may reach before the interruption, and again after it. A handler with more places cannot be tested
/// completely in reasonable time.
pub(super) const MAX_PLACES: usize = 2000;

/// Place where [`interrupt_everywhere`](super::interrupt_everywhere) interrupts a job.
///
/// Places of each kind are counted separately, starting at 1, over all attempts. A handler may wait for the response to the same
/// statement once in one run and twice in another. With a common counter, the numbers of later writes would differ between runs.
///
/// ```
/// # use queue_core::{Context, Handler, JobResult, job, testing};
/// # #[job] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # impl Handler for Email { async fn run(self, _: &Context) -> JobResult { Ok(()) } }
/// # async fn example() -> Result<(), testing::Error> {
/// let mut places: Vec<testing::Place> = Vec::new();
/// testing::interrupt_everywhere(
///     async || testing::run(Email { to: "ada@example.org".into() }),
///     async |ran| {
///         places.extend(ran.interrupted_at());
///     },
/// )
/// .await?;
/// assert!(places.contains(&testing::Place::Returned(1)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Point at the nth wait of the handler.
    Wait(usize),
    /// Point right after the nth write for the job, such as a checkpoint or a commit, before the write returns to the handler.
    Written(usize),
    /// Point after the nth return of the handler, before the verdict is recorded.
    Returned(usize),
}

impl Place {
    /// First place of each kind.
    pub(super) const KINDS: [Self; 3] = [Self::Wait(1), Self::Written(1), Self::Returned(1)];

    pub(super) fn number(self) -> usize {
        match self {
            Self::Wait(n) | Self::Written(n) | Self::Returned(n) => n,
        }
    }

    /// Returns the next place of the same kind.
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
            Self::Written(n) => write!(f, "write {n}, right after it"),
            Self::Returned(n) => write!(f, "return {n}"),
        }
    }
}

/// Formats a place for messages.
pub(super) fn shown(at: Option<Place>) -> String {
    at.map_or_else(|| "nowhere".to_owned(), |at| format!("at {at}"))
}

/// Counter of the places reached in all attempts of a job. The counter also interrupts the job at one place.
#[derive(Debug)]
pub(super) struct InterruptPoints {
    /// Place at which to interrupt the job; `None` for no interruption.
    at: Option<Place>,
    waits: AtomicUsize,
    written: AtomicUsize,
    returned: AtomicUsize,
    /// Total number of places reached when the job was interrupted; 0 before the interruption.
    seen_at_interruption: AtomicUsize,
}

impl InterruptPoints {
    pub(super) fn new(at: Option<Place>) -> Self {
        let (waits, written, returned, seen_at_interruption) = Default::default();
        Self { at, waits, written, returned, seen_at_interruption }
    }

    pub(super) fn at(&self) -> Option<Place> {
        self.at
    }

    fn seen(&self) -> usize {
        Place::KINDS.into_iter().map(|kind| self.seen_of_kind(kind)).sum()
    }

    /// Returns the number of places of the same kind as `kind` that were reached so far.
    pub(super) fn seen_of_kind(&self, kind: Place) -> usize {
        match kind {
            Place::Wait(_) => self.waits.load(Relaxed),
            Place::Written(_) => self.written.load(Relaxed),
            Place::Returned(_) => self.returned.load(Relaxed),
        }
    }

    pub(super) fn was_interrupted(&self) -> bool {
        self.seen_at_interruption.load(Relaxed) > 0
    }

    /// Returns whether more than [`MAX_PLACES`] places were reached since the interruption, or since the start of the run if the job has
    /// not been interrupted. The attempt is then abandoned.
    pub(super) fn exceeds_limit(&self) -> bool {
        self.seen() > self.seen_at_interruption.load(Relaxed) + MAX_PLACES
    }

    fn waits(&self) -> bool {
        self.waits.fetch_add(1, Relaxed);
        self.is_interrupted_at(Place::Wait(self.waits.load(Relaxed)))
    }

    fn has_written(&self) -> bool {
        self.written.fetch_add(1, Relaxed);
        self.is_interrupted_at(Place::Written(self.written.load(Relaxed)))
    }

    /// Counts a return of the handler. Returns whether to interrupt the attempt at this place, so that its verdict is lost.
    pub(super) fn has_returned(&self) -> bool {
        self.returned.fetch_add(1, Relaxed);
        self.is_interrupted_at(Place::Returned(self.returned.load(Relaxed)))
    }

    /// Returns whether to abandon the attempt at `place`, either to interrupt the job there or because [`MAX_PLACES`] was exceeded.
    fn is_interrupted_at(&self, place: Place) -> bool {
        if self.at == Some(place) {
            self.seen_at_interruption.store(self.seen(), Relaxed);
            return true;
        }
        self.exceeds_limit()
    }

    /// Returns the output of `work`, or `None` if `work` was interrupted. In either case, `work` is dropped before this function returns.
    /// `kept` returns the number of writes so far.
    pub(super) async fn run_interruptible<F: Future>(&self, work: F, kept: impl Fn() -> usize) -> Option<F::Output> {
        let (mut work, mut known) = (pin!(work), kept());
        let interrupted = |task: &mut std::task::Context<'_>| {
            // If `kept` has increased, the attempt has stored a write whose result the handler has not received yet.
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
