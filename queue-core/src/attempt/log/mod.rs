//! What is logged within one attempt, as far as it is kept: for types that say `keep_logs`.
//!
//! The attempt's span is made while its log is on offer to this thread. Whoever collects logs (`queue_worker::logs`) takes it then, and writes into
//! it what is logged within that span and those within it. At the attempt's end it is taken back, and what is logged later is lost.

mod ring;

use std::{
    cell::{Cell, RefCell},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use self::ring::{Clean, KeptLog, Ring};

/// What one attempt logs.
#[derive(Debug)]
pub struct OpenLog {
    /// None once the attempt is over.
    ring: Mutex<Option<Ring>>,
    is_taken: AtomicBool,
}

/// How many there are: without any, whoever collects logs has nothing to do.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OFFERED: RefCell<Option<Arc<OpenLog>>> = const { RefCell::new(None) };
    /// Whether this thread writes into one.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

impl OpenLog {
    /// Of so many bytes.
    pub(super) fn open(limit: usize) -> Arc<Self> {
        OPEN.fetch_add(1, Relaxed);
        Arc::new(Self { ring: Mutex::new(Some(Ring::new(limit))), is_taken: AtomicBool::new(false) })
    }

    /// Makes a span, with which it is taken.
    pub(super) fn offer<T>(self: &Arc<Self>, make: impl FnOnce() -> T) -> T {
        OFFERED.with(|offered| *offered.borrow_mut() = Some(Arc::clone(self)));
        let made = make();
        OFFERED.with(|offered| offered.borrow_mut().take());
        made
    }

    /// The log of the attempt whose span is being made on this thread; `None` for all other spans.
    pub fn take_offered() -> Option<Arc<Self>> {
        if !Self::are_any() {
            return None;
        }
        let log = OFFERED.with(|offered| offered.try_borrow_mut().ok().and_then(|mut offered| offered.take()))?;
        log.is_taken.store(true, Relaxed);
        Some(log)
    }

    /// Whether any attempt keeps what it logs.
    pub fn are_any() -> bool {
        OPEN.load(Relaxed) > 0
    }

    /// Whether somebody collects what is logged.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// Writes one line, by what writes it. What is logged by that itself, such as by a `Debug` of a user's, is left out.
    pub fn write(&self, line: impl FnOnce(&mut dyn fmt::Write) -> fmt::Result) {
        struct Writing;
        impl Drop for Writing {
            fn drop(&mut self) {
                WRITES.with(|writes| writes.set(false));
            }
        }
        if WRITES.with(|writes| writes.replace(true)) {
            return;
        }
        let _writing = Writing;
        // A line that panicked has written some of itself, which is no harm.
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &mut *ring {
            // Fails only when a user's `Debug` does, and then as much as there is stands there.
            let _ = line(&mut Clean(ring));
            ring.push("\n");
        }
    }

    /// What was logged; nothing is from now on.
    pub(super) fn close(&self) -> Option<KeptLog> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        ring.map(Ring::finish).filter(|kept| !kept.text.is_empty())
    }
}

/// Says once that a type asks for logs that nobody collects.
pub(super) fn tell_of_no_collector(job_type: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Relaxed) {
        tracing::warn!(job_type, "this type keeps logs, and nobody collects them: add the layer `queue_worker::logs()` to the subscriber");
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}
