//! Logs of attempts, for job types with `keep_logs`.
//!
//! While the attempt's span is being created, the attempt's log is available through a thread-local variable. A log collector
//! (`queue_worker::logs`) takes the log and adds the events of the span and its child spans. When the attempt ends, the log is closed and
//! later events are dropped.

mod ring;

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use self::ring::{LogExcerpt, LogRing, SanitizedWriter};

/// Log of one running attempt. A log collector writes the lines.
#[derive(Debug)]
pub struct OpenLog {
    /// Log text; `None` after the attempt has ended.
    ring: Mutex<Option<LogRing>>,
    is_taken: AtomicBool,
}

/// Number of open logs. While the number is zero, a collector skips all work.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OFFERED: RefCell<Option<Arc<OpenLog>>> = const { RefCell::new(None) };
    /// Whether the current thread is writing to a log.
    static IS_WRITING: Cell<bool> = const { Cell::new(false) };
}

impl OpenLog {
    /// Opens a log with a maximum size of `limit` bytes.
    pub(super) fn open(limit: usize) -> Arc<Self> {
        OPEN.fetch_add(1, Relaxed);
        Arc::new(Self { ring: Mutex::new(Some(LogRing::new(limit))), is_taken: AtomicBool::new(false) })
    }

    /// Makes the log available to collectors on the current thread while `make` creates the span.
    pub(super) fn offer<T>(self: &Arc<Self>, make: impl FnOnce() -> T) -> T {
        OFFERED.with(|offered| *offered.borrow_mut() = Some(Arc::clone(self)));
        let span = make();
        OFFERED.with(|offered| offered.borrow_mut().take());
        span
    }

    /// Takes the log of the attempt whose span is being created on the current thread. Returns `None` for other spans.
    pub fn take_offered() -> Option<Arc<Self>> {
        if !Self::any_open() {
            return None;
        }
        let log = OFFERED.with(|offered| offered.try_borrow_mut().ok().and_then(|mut offered| offered.take()))?;
        log.is_taken.store(true, Relaxed);
        Some(log)
    }

    /// Returns whether any attempt has an open log.
    pub fn any_open() -> bool {
        OPEN.load(Relaxed) > 0
    }

    /// Returns whether a collector has taken the log.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// Writes one line. Events logged during the write, for example by a user's `Debug` implementation, are dropped.
    pub fn write(&self, line: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) {
        struct WriteGuard;
        impl Drop for WriteGuard {
            fn drop(&mut self) {
                IS_WRITING.with(|is_writing| is_writing.set(false));
            }
        }
        if IS_WRITING.with(|is_writing| is_writing.replace(true)) {
            return;
        }
        let _guard = WriteGuard;
        // Poisoning is ignored, because a panic during a write leaves only a partial line.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &mut *ring {
            // The write fails only if a user's `Debug` implementation fails. The line is then partial.
            let _ = line(&mut SanitizedWriter(ring));
            ring.push("\n");
        }
    }

    /// Closes the log. Returns the log's text, or `None` if the log is empty.
    pub(super) fn close(&self) -> Option<LogExcerpt> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        ring.map(LogRing::finish).filter(|excerpt| !excerpt.text.is_empty())
    }
}

/// Warns once per process that a job type keeps logs but no collector is installed.
pub(super) fn warn_missing_collector(job_type: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Relaxed) {
        tracing::warn!(
            job_type,
            "no log collector for a type with keep_logs, its logs are dropped: add the layer `queue_worker::logs()` to the subscriber"
        );
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}
