//! Logs panics through `tracing`.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    sync::Once,
};

/// Logs panics of this process through `tracing` at level `error`, instead of printing them to stderr.
///
/// With a JSON log, panics are logged as JSON lines. If a handler panicked, the line includes the job's id, type and attempt. The command
/// line calls this function. A program with a custom logging setup can also call this function.
///
/// If no subscriber accepts events at level `error`, panics are still printed to stderr. Repeated calls have no effect.
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
