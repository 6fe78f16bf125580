//! Collects what handlers log, of job types that say `keep_logs`: a layer for the program's `tracing` subscriber.
//!
//! The log itself, and its bound, are the attempt's; this finds out which log an event belongs to, and writes it as a line.

use std::{
    fmt,
    io::{IsTerminal as _, stderr},
    marker::PhantomData,
    sync::Arc,
};

use chrono::{SecondsFormat, Utc};
use queue_core::runner::OpenLog;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id},
    subscriber::{Interest, NoSubscriber},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::Filtered,
    layer::{Context, Filter, SubscriberExt as _},
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Keeps what handlers log at `INFO` and above with their attempts, for types that say so: `#[job(keep_logs = "64KiB")]`.
///
/// [`main!`](crate::main) installs it; a program with a subscriber of its own adds it there, beside the layer that prints. It has a filter of its
/// own, so give filters to the other layers, not to the whole: a global `EnvFilter` keeps from this what it keeps from them.
///
/// An event belongs to an attempt if it happens within the attempt's span, or a span within that: so in the handler, and in tasks that are
/// `.instrument`ed with such a span. It is written as it is given: **what a handler logs is stored in clear**.
///
/// ```no_run
/// use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};
///
/// let print = tracing_subscriber::fmt::layer().with_filter(EnvFilter::from_default_env());
/// tracing_subscriber::registry().with(print).with(queue_worker::logs()).init();
/// ```
pub fn logs<S>() -> Filtered<Logs<S>, AtLeast, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    logs_at(Level::INFO)
}

/// As [`logs`], at this level and above.
pub fn logs_at<S>(level: Level) -> Filtered<Logs<S>, AtLeast, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Logs { subscriber: PhantomData }.with_filter(AtLeast(LevelFilter::from_level(level)))
}

/// Default filter of a worker's log. The notices of a migration that had nothing to do are no news.
pub(crate) const WORKER_LOG: &str = "info,sqlx::postgres::notice=warn";

/// Logs to stderr, by `RUST_LOG` or else [`WORKER_LOG`], if the program has set no subscriber: or failed attempts would be seen nowhere.
pub(crate) fn log_to_stderr_by_default() {
    if tracing::dispatcher::get_default(tracing::Dispatch::is::<NoSubscriber>) {
        log_to_stderr(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(WORKER_LOG)), false);
    }
}

/// Logs to stderr, and keeps what handlers log. A subscriber that the program has set stays.
pub(crate) fn log_to_stderr(filter: EnvFilter, as_json: bool) {
    // Were a log line that cannot be written an event to log, the end of whoever reads the log would be ours.
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal()).log_internal_errors(false);
    // The filter is that of what is printed alone: what handlers log is kept all the same.
    let kept = tracing_subscriber::registry().with(logs());
    // Fails only when the program has set up its own logs, which then are right.
    let _ = if as_json { kept.with(log.json().with_filter(filter)).try_init() } else { kept.with(log.with_filter(filter)).try_init() };
}

/// What [`logs`] returns.
pub struct Logs<S> {
    subscriber: PhantomData<fn(S)>,
}

/// The filter of [`logs`]: a level and above.
///
/// It is asked at each event, never once for all of a place in the code. Where all filters of a subscriber answer once for all, `tracing-subscriber`
/// takes the answer that it was given last on this thread, to whatever question: a line that follows a statement of the driver, which asks whether
/// statements are logged, would be lost to every layer (tokio-rs/tracing#2519).
#[derive(Clone, Copy, Debug)]
pub struct AtLeast(LevelFilter);

impl<S> Filter<S> for AtLeast {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        *metadata.level() <= self.0
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if *metadata.level() <= self.0 { Interest::sometimes() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }
}

/// In the extensions of a span: the log of its attempt.
struct Kept(Arc<OpenLog>);

impl<S> Layer<S> for Logs<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        if !OpenLog::any_open() {
            return;
        }
        let Some(span) = cx.span(id) else { return };
        let own = OpenLog::take_offered();
        let log = own.or_else(|| Some(Arc::clone(&span.parent()?.extensions().get::<Kept>()?.0)));
        if let Some(log) = log {
            span.extensions_mut().insert(Kept(log));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        if !OpenLog::any_open() {
            return;
        }
        let Some(span) = cx.event_span(event) else { return };
        // Not held while the line is written, for that may make spans.
        let log = span.extensions().get::<Kept>().map(|kept| Arc::clone(&kept.0));
        if let Some(log) = log {
            log.write(|to| line(to, event));
        }
    }
}

/// `2026-11-23T12:00:00.123Z  INFO my_app::mail: sent to=7`
fn line(to: &mut dyn fmt::Write, event: &Event<'_>) -> fmt::Result {
    let (said, now) = (event.metadata(), Utc::now());
    write!(to, "{} {:>5} {}:", now.to_rfc3339_opts(SecondsFormat::Millis, true), said.level().as_str(), said.target())?;
    let mut fields = Fields { to, written: Ok(()) };
    event.record(&mut fields);
    fields.written
}

struct Fields<'a> {
    to: &'a mut dyn fmt::Write,
    written: fmt::Result,
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.written.is_ok() && !field.name().starts_with("log.") {
            self.written = match field.name() {
                "message" => write!(self.to, " {value:?}"),
                name => write!(self.to, " {name}={value:?}"),
            };
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { self.record_debug(field, &format_args!("{value}")) } else { self.record_debug(field, &value) }
    }
}

impl<S> fmt::Debug for Logs<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logs")
    }
}
