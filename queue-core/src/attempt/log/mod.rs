//! Logs of attempts, for types with `keep_logs`.
//!
//! While the attempt's span is created, its log is offered to this thread. A log collector (`queue_worker::logs`) takes it, and writes
//! events inside that span and its children to it. When the attempt ends, the log is closed and later events are dropped.

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

/// Log of one attempt.
#[derive(Debug)]
pub struct OpenLog {
    /// `None` after the attempt has ended.
    ring: Mutex<Option<LogRing>>,
    is_taken: AtomicBool,
}

/// Number of open logs. A collector has nothing to do while it is zero.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OFFERED: RefCell<Option<Arc<OpenLog>>> = const { RefCell::new(None) };
    /// Whether this thread is writing to a log.
    static IS_WRITING: Cell<bool> = const { Cell::new(false) };
}

impl OpenLog {
    /// Opens a log with a limit in bytes.
    pub(super) fn open(limit: usize) -> Arc<Self> {
        OPEN.fetch_add(1, Relaxed);
        Arc::new(Self { ring: Mutex::new(Some(LogRing::new(limit))), is_taken: AtomicBool::new(false) })
    }

    /// Offers the log to the thread while `make` creates the span.
    pub(super) fn offer<T>(self: &Arc<Self>, make: impl FnOnce() -> T) -> T {
        OFFERED.with(|offered| *offered.borrow_mut() = Some(Arc::clone(self)));
        let span = make();
        OFFERED.with(|offered| offered.borrow_mut().take());
        span
    }

    /// Takes the log of the attempt whose span is being created on this thread; `None` for other spans.
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

    /// Returns whether a collector took the log.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// Writes one line. Events logged while writing, such as by a user's `Debug`, are dropped.
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
        // A panic during a write leaves a partial line, which is harmless.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &mut *ring {
            // Fails only if a user's `Debug` does; the line is then partial.
            let _ = line(&mut SanitizedWriter(ring));
            ring.push("\n");
        }
    }

    /// Closes the log and returns its text, unless it is empty.
    pub(super) fn close(&self) -> Option<LogExcerpt> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        ring.map(LogRing::finish).filter(|excerpt| !excerpt.text.is_empty())
    }
}

/// Warns once per process that a type keeps logs without a collector.
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
