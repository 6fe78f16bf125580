//! Configuration of a worker. [`Config`] contains the settings listed in `settings`, and [`Config::check`] verifies their ranges. The
//! defaults suit most programs.

use std::time::Duration;

use queue_core::{
    Store, check_name,
    options::{Durability, TraceRelation},
};

use super::{OnStandby, settings::each_setting};
use crate::error::Error;

macro_rules! config {
    ($($(#[$attribute:meta])* $name:ident($variable:literal, $value:literal): $type:ty, $taken:ty, $written:ty = $default:expr;)*) => {
        /// Settings of a worker.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct Config {
            /// Store that contains the worker's jobs. Default: the schema `queue`.
            pub store: Store,
            /// Queues to serve, with the concurrency of each queue. If empty, the worker serves every queue that contains jobs of its
            /// types. Default: empty.
            pub queues: Vec<(String, usize)>,
            /// Whether the commit of a verdict waits for the WAL flush. Default: [`Durability::Full`], which waits. With
            /// [`Durability::Relaxed`], a crash of the database server may lose the most recent verdicts. The affected jobs then run again.
            pub durability: Durability,
            /// Relation of an attempt's tracing span to the span of the enqueue. Default: a link.
            pub trace: TraceRelation,
            /// Divisor for the intervals that the worker measures with its local clock. Tests set it to avoid waiting for minutes.
            #[doc(hidden)]
            pub pace: u32,
            $($(#[$attribute])* pub $name: $type,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { store: Store::default(), queues: Vec::new(), durability: Durability::Full, trace: TraceRelation::Link, pace: 1, $($name: $default,)* }
            }
        }
    };
}
each_setting!(config);

fn host() -> String {
    hostname::get().map_or_else(|_| "worker".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Number of crashes during a job's attempts after which the job becomes a dead letter.
pub(crate) const MOST_CRASHES: i16 = 3;

/// Accepted values of `retention`, as shown in errors. Each day of history has five tables, so a statement over the whole history opens
/// more tables with each day.
const RETENTIONS: &str = "1s to 100d, as each day of history slows statements down; a job type with few jobs is kept for longer by its own \
                          `retain = \"400d\"`, dead letters by `dead_retention`";

/// Maximum concurrency of a queue.
const MOST_CONCURRENCY: usize = 10_000;

/// Maximum length of a worker's name in characters.
const MOST_NAME: usize = 200;

impl Config {
    /// Returns the served queues as text, such as `mail=20,web=5`, or `all` if no queue is named.
    pub(crate) fn served(&self) -> String {
        let named: Vec<String> = self.queues.iter().map(|(queue, concurrency)| format!("{queue}={concurrency}")).collect();
        if named.is_empty() { "all".to_owned() } else { named.join(",") }
    }

    /// Checks that all settings are valid.
    pub(crate) fn check(&self) -> Result<(), Error> {
        range("concurrency", &self.concurrency, 1..=MOST_CONCURRENCY, "1 to 10000")?;
        for (at, (queue, concurrency)) in self.queues.iter().enumerate() {
            check_name("queue name", queue)?;
            let wrong = |key, value: String, range| Err(Error::Config { key, value, range });
            if !(1..=MOST_CONCURRENCY).contains(concurrency) {
                return wrong("concurrency", format!("{concurrency} for the queue `{queue}`"), "1 to 10000");
            }
            if self.queues[..at].iter().any(|(before, _)| before == queue) {
                return wrong("queue", format!("`{queue}` twice"), "a name that appears once");
            }
        }
        range("the length of name", &self.name.chars().count(), 1..=MOST_NAME, "1 to 200")?;
        range("batch", &self.batch, 1..=10_000, "1 to 10000")?;
        range("payload_memory", &self.payload_memory, 192..=1_048_576, "192 to 1048576")?;
        range("connections", &self.connections, 4..=100, "4 to 100")?;
        let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
        range("lease_ttl", &ShownDuration(self.lease_ttl), ShownDuration(second)..=ShownDuration(day), "1s to 1d")?;
        range(
            "poll_interval",
            &ShownDuration(self.poll_interval),
            ShownDuration(second / 100)..=ShownDuration(second * 3600),
            "10ms to 1h",
        )?;
        if let Some(aging) = self.aging {
            range("aging", &ShownDuration(aging), ShownDuration(second / 100)..=ShownDuration(day * 365), "10ms to 1 year")?;
        }
        range("cancel_grace", &ShownDuration(self.cancel_grace), ShownDuration(Duration::ZERO)..=ShownDuration(day), "0s to 1d")?;
        if let Some(kept) = self.dead_retention {
            range("dead_retention", &ShownDuration(kept), ShownDuration(second)..=ShownDuration(day * 36_500), "1s to 100 years")?;
        }
        range("grace", &ShownDuration(self.grace), ShownDuration(Duration::ZERO)..=ShownDuration(day), "0s to 1d")?;
        range("retention", &ShownDuration(self.retention), ShownDuration(second)..=ShownDuration(day * 100), RETENTIONS)
    }
}

#[derive(PartialEq, PartialOrd)]
struct ShownDuration(Duration);

impl std::fmt::Display for ShownDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(u64, &str); 5] = [(31_557_600, " years"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
        let seconds = self.0.as_secs();
        match UNITS.iter().find(|(unit, _)| (seconds >= *unit || *unit == 1) && seconds.is_multiple_of(*unit)) {
            // Durations of a year or more are shown in whole years.
            _ if seconds >= UNITS[0].0 => write!(f, "{}{}", seconds / UNITS[0].0, UNITS[0].1),
            Some((unit, name)) if self.0.subsec_nanos() == 0 => write!(f, "{}{name}", seconds / unit),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

fn range<T: PartialOrd + std::fmt::Display>(
    key: &'static str,
    value: &T,
    fits: std::ops::RangeInclusive<T>,
    range: &'static str,
) -> Result<(), Error> {
    if fits.contains(value) { Ok(()) } else { Err(Error::Config { key, value: value.to_string(), range }) }
}
