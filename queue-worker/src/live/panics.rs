//! Panics as log lines.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    sync::Once,
};

/// Logs panics of this process through `tracing` at level `error` instead of printing them to stderr: as JSON lines if the log is, and with the job's
/// id, type and attempt if a handler panicked. The command line calls this; a program that sets up its own logging may do so.
///
/// Without a subscriber for errors, panics are printed as before. Later calls have no effect.
pub fn log_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| if tracing::enabled!(tracing::Level::ERROR) { log(info) } else { before(info) }));
    });
}

fn log(info: &PanicHookInfo<'_>) {
    let what = info.payload_as_str().unwrap_or("with a payload that is not a string");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(&backtrace));
    tracing::error!(panic = what, place, backtrace, "panicked");
}
