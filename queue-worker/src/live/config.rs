//! Every setting of a worker, with its default and the reason for it. The defaults are meant to be right.

use std::time::Duration;

use queue_core::{Durability, Store, check_name};

use crate::error::Error;

/// How a worker works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Shown to operators. Default: the host's name.
    pub name: String,
    /// Where its jobs are. Default: the schema `queue`.
    pub store: Store,
    /// The queues it serves, each with its own concurrency. Empty, the default: every queue in which its job types appear.
    pub queues: Vec<(String, usize)>,
    /// How many handlers of each queue run at a time, when none are named. Default 50: enough to hide the waits of handlers that
    /// call other services, few enough for a database pool behind them.
    pub concurrency: usize,
    /// How many transactional jobs of each named queue, or of all, run at a time, if its concurrency is not less. Default 4: each takes a
    /// connection of the worker's own.
    pub transactional: usize,
    /// How long jobs of a lower priority may be passed over before some of them go first. Default: for ever, so that priority is strict.
    pub aging: Option<Duration>,
    /// Whether a verdict waits for the disk. Default: it does. With [`Durability::Relaxed`] a crash of the database's machine may forget the last
    /// verdicts, and those jobs run again.
    pub durability: Durability,
    /// How often it looks for jobs unasked. Default 1 s: the most that a lost notification can cost.
    pub poll_interval: Duration,
    /// How long it may be silent before others take its jobs. Default 30 s; not under 1 s. A handler may take longer: the heartbeat has its
    /// own thread.
    pub lease_ttl: Duration,
    /// How long running handlers may go on after a shutdown was asked for. Default 20 s: under the 30 s after which most supervisors kill.
    pub grace: Duration,
    /// How long the history of completed and cancelled jobs is kept, unless their type says otherwise. Default 7 days.
    pub retention: Duration,
    /// How long dead letters are kept. Default: until somebody acts.
    pub dead_retention: Option<Duration>,
    /// How long a running handler may go on after its job was cancelled, before its future is dropped. Default 10 s.
    pub cancel_grace: Duration,
    /// How many jobs one claim takes at most. Default 500: above that a claim gets slower as fast as it gets larger.
    pub batch: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: hostname::get().map_or_else(|_| "worker".to_owned(), |name| name.to_string_lossy().into_owned()),
            store: Store::default(),
            queues: Vec::new(),
            concurrency: 50,
            transactional: 4,
            aging: None,
            durability: Durability::Full,
            poll_interval: Duration::from_secs(1),
            lease_ttl: Duration::from_secs(30),
            grace: Duration::from_secs(20),
            retention: Duration::from_hours(7 * 24),
            dead_retention: None,
            cancel_grace: Duration::from_secs(10),
            batch: 500,
        }
    }
}

/// How many crashes of the process during a job make it a dead letter.
pub(crate) const MOST_CRASHES: i16 = 3;

/// No subscription runs more handlers at a time than this.
const MOST_CONCURRENCY: usize = 10_000;

impl Config {
    /// The queues it serves, for people: `mail=20,web=5`, or `any`.
    pub(crate) fn served(&self) -> String {
        let named: Vec<String> = self.queues.iter().map(|(queue, concurrency)| format!("{queue}={concurrency}")).collect();
        if named.is_empty() { "any".to_owned() } else { named.join(",") }
    }

    /// Checks every setting.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let limits = self.queues.iter().map(|(_, concurrency)| *concurrency).chain([self.concurrency]);
        for concurrency in limits {
            range("concurrency", &concurrency, 1..=MOST_CONCURRENCY, "1 to 10000")?;
        }
        for (queue, _) in &self.queues {
            check_name("queue name", queue)?;
        }
        range("batch", &self.batch, 1..=10_000, "1 to 10000")?;
        range("transactional", &self.transactional, 1..=1000, "1 to 1000")?;
        let (second, day) = (Duration::from_secs(1), Duration::from_hours(24));
        range("lease_ttl", &Shown(self.lease_ttl), Shown(second)..=Shown(day), "1s to 1d")?;
        range("poll_interval", &Shown(self.poll_interval), Shown(second / 100)..=Shown(second * 3600), "10ms to 1h")?;
        if let Some(aging) = self.aging {
            range("aging", &Shown(aging), Shown(second / 100)..=Shown(day * 365), "10ms to 1 year")?;
        }
        range("cancel_grace", &Shown(self.cancel_grace), Shown(Duration::ZERO)..=Shown(day), "0s to 1d")?;
        if let Some(kept) = self.dead_retention {
            range("dead_retention", &Shown(kept), Shown(second)..=Shown(day * 36_500), "1s to 100 years")?;
        }
        range("grace", &Shown(self.grace), Shown(Duration::ZERO)..=Shown(day), "0s to 1d")?;
        range("retention", &Shown(self.retention), Shown(second)..=Shown(day * 36_500), "1s to 100 years")
    }
}

#[derive(PartialEq, PartialOrd)]
struct Shown(Duration);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
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
