//! Layer for the program's `tracing` subscriber. The layer stores the log events of handlers whose job types set `keep_logs`.
//!
//! Each attempt owns a log with a size limit. This module appends each event as a line to the log of its attempt.

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

/// Returns a layer that stores the log events that handlers emit at `INFO` and above, each with its attempt. Applies to job types with
/// `#[job(keep_logs = "64KiB")]`.
///
/// [`main!`](crate::main) installs the layer. A program with a custom subscriber adds the layer next to the layer that prints. Set
/// filters on the other layers instead of the whole subscriber. A global `EnvFilter` would also remove events from this layer.
///
/// An event belongs to an attempt if it occurs within the attempt's span or a child span. These events come from the handler, and from
/// tasks that are `.instrument`ed with one of these spans. Nothing is redacted: **what a handler logs is stored unencrypted**.
///
/// ```no_run
/// use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};
///
/// let print = tracing_subscriber::fmt::layer().with_filter(EnvFilter::from_default_env());
/// tracing_subscriber::registry().with(print).with(queue_worker::logs()).init();
/// ```
pub fn logs<S>() -> Filtered<Logs<S>, MinimumLevel, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    logs_at(Level::INFO)
}

/// Returns a layer like [`logs`], for events at `level` and above.
pub fn logs_at<S>(level: Level) -> Filtered<Logs<S>, MinimumLevel, S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Logs { subscriber: PhantomData }.with_filter(MinimumLevel(LevelFilter::from_level(level)))
}

/// Default filter of the worker's log. Omits PostgreSQL notices, because migrations that change nothing cause notices.
pub(crate) const WORKER_LOG: &str = "info,sqlx::postgres::notice=warn";

/// Logs to stderr unless the program has set a subscriber. Without a subscriber, failed attempts would not be visible. The filter is
/// `RUST_LOG`, or [`WORKER_LOG`] if `RUST_LOG` is missing or invalid.
pub(crate) fn log_to_stderr_by_default() {
    if tracing::dispatcher::get_default(tracing::Dispatch::is::<NoSubscriber>) {
        log_to_stderr(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(WORKER_LOG)), false);
    }
}

/// Installs a subscriber that logs to stderr and stores the log events of handlers. Has no effect if the program has set a subscriber.
pub(crate) fn log_to_stderr(filter: EnvFilter, as_json: bool) {
    // Errors while writing a log line must not be logged. Otherwise, a closed stderr would end the process.
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal()).log_internal_errors(false);
    // The filter applies only to printed lines. The layer for stored logs has a separate filter.
    let kept = tracing_subscriber::registry().with(logs());
    // `try_init` fails only if the program has set a subscriber, which takes precedence.
    let _ = if as_json { kept.with(log.json().with_filter(filter)).try_init() } else { kept.with(log.with_filter(filter)).try_init() };
}

/// Layer returned by [`logs`] and [`logs_at`].
///
/// ```no_run
/// use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
///
/// let print = tracing_subscriber::fmt::layer();
/// tracing_subscriber::registry().with(print).with(queue_worker::logs_at(tracing::Level::DEBUG)).init();
/// ```
pub struct Logs<S> {
    subscriber: PhantomData<fn(S)>,
}

/// Filter of the layer returned by [`logs`]. Accepts events at or above a level.
///
/// The filter does not cache positive decisions per callsite, so it is evaluated for each event at these levels. If all filters of a
/// subscriber cached their decisions, `tracing-subscriber` would reuse the last decision on this thread, even for another event. After
/// the database driver has checked whether statements are logged, every layer would then lose the next log line (tokio-rs/tracing#2519).
#[derive(Clone, Copy, Debug)]
pub struct MinimumLevel(LevelFilter);

impl<S> Filter<S> for MinimumLevel {
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

/// Log of an attempt, stored as an extension of the attempt's spans.
struct AttemptLog(Arc<OpenLog>);

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
        let log = own.or_else(|| Some(Arc::clone(&span.parent()?.extensions().get::<AttemptLog>()?.0)));
        if let Some(log) = log {
            span.extensions_mut().insert(AttemptLog(log));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        if !OpenLog::any_open() {
            return;
        }
        let Some(span) = cx.event_span(event) else { return };
        // The extensions are released before the line is written, because formatting may create spans.
        let log = span.extensions().get::<AttemptLog>().map(|log| Arc::clone(&log.0));
        if let Some(log) = log {
            log.write(|to| line(to, event));
        }
    }
}

/// Writes an event as a line such as `2026-11-23T12:00:00.123Z  INFO my_app::mail: sent to=7`.
fn line(to: &mut dyn fmt::Write, event: &Event<'_>) -> fmt::Result {
    let (metadata, now) = (event.metadata(), Utc::now());
    write!(to, "{} {:>5} {}:", now.to_rfc3339_opts(SecondsFormat::Millis, true), metadata.level().as_str(), metadata.target())?;
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
