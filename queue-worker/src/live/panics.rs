//! Panics as log lines.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic::{self, PanicHookInfo},
    sync::Once,
};

/// Sends the panics of this process through `tracing`, at `error`, instead of raw to stderr: in a log of JSON lines each is a line then, and one
/// of a handler carries its job's id, type and attempt. The command line does this by itself; a program that sets up its own logs may call it.
///
/// Where nobody subscribes to errors, panics are told as before. Calls after the first change nothing.
pub fn log_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| if tracing::enabled!(tracing::Level::ERROR) { log(info) } else { before(info) }));
    });
}

fn log(info: &PanicHookInfo<'_>) {
    let what = info.payload_as_str().unwrap_or("with a value that is no text");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(&backtrace));
    tracing::error!(panic = what, place, backtrace, "panicked");
}
