//! What is said of a job besides its payload: where it goes, how often it is tried, when it may run. Checked here, written elsewhere.

use std::{borrow::Cow, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use crate::{
    define::{Durability, JobType, KeyPolicy, OnConflict, While},
    error::Error,
    schema::check_name,
};

/// A type's options, and what was said to differ from them.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) job_type: &'static str,
    pub(super) queue: Cow<'static, str>,
    pub(super) priority: i16,
    pub(super) max_attempts: i16,
    pub(super) run: Run,
    pub(super) durability: Durability,
    /// Given to the builder, instead of the job's own.
    pub(super) key: Option<String>,
    pub(super) key_policy: KeyPolicy,
    /// Some if the job is unique.
    pub(super) unique: Option<Uniqueness>,
}

/// What was said of a job's uniqueness, by its type or by its enqueue.
#[derive(Clone, Debug, Default)]
pub(super) struct Uniqueness {
    /// The key that was given; else the type's fields make it.
    pub(super) key: Option<String>,
    pub(super) held: Option<While>,
    pub(super) on_conflict: Option<OnConflict>,
}

/// When a job may first run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    Now,
    After(Duration),
    At(DateTime<Utc>),
}

/// When a job may first run, as an option: at a time, or so many seconds from now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunOptions {
    pub(super) run_at: Option<DateTime<Utc>>,
    pub(super) after: Option<f64>,
}

impl Terms {
    pub(super) fn of<J: JobType>() -> Self {
        let options = J::OPTIONS;
        Self {
            job_type: options.name,
            queue: Cow::Borrowed(options.queue),
            priority: options.priority,
            max_attempts: options.max_attempts,
            run: Run::Now,
            durability: options.durability,
            key: None,
            key_policy: options.key_policy,
            unique: options.unique.map(|unique| Uniqueness { key: None, held: Some(unique.held), on_conflict: Some(unique.on_conflict) }),
        }
    }

    /// The ordering key of this job, if it has one.
    pub(super) fn key_of<J: JobType>(&self, job: &J) -> Result<Option<String>, Error> {
        let key = self.key.clone().or_else(|| job.ordering_key().map(Cow::into_owned));
        key.map(check_key).transpose()
    }

    /// As `queue.enqueue` reads them, with these keys of the job.
    pub(super) fn options(&self, run: RunOptions, key: Option<&str>, unique_key: Option<&str>) -> Value {
        let unique = self.unique.clone().unwrap_or_default();
        let RunOptions { run_at, after } = run;
        json!({
            "queue": self.queue,
            "priority": self.priority,
            "max_attempts": self.max_attempts,
            "run_at": run_at.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true)),
            "after": after,
            "key": key,
            "key_policy": key.map(|_| self.key_policy.name()),
            "unique_key": unique_key,
            "unique_while": unique_key.map(|_| unique.held.unwrap_or_default().to_sql()),
            "on_conflict": unique_key.map(|_| unique.on_conflict.unwrap_or_default().to_sql()),
        })
    }

    /// Whether the database can hold them.
    pub(super) fn check(&self) -> Result<(), Error> {
        check_name("queue name", &self.queue)?;
        check_name("job type name", self.job_type)?;
        self.key.clone().map(check_key).transpose()?;
        if self.max_attempts < 1 {
            return Err(Error::OutOfRange { what: "max_attempts", value: self.max_attempts.to_string(), range: "1 to 32767" });
        }
        match &self.unique {
            Some(Uniqueness { held: Some(held), .. }) if !held.fits() => {
                Err(Error::OutOfRange { what: "the time of a uniqueness key", value: format!("{held:?}"), range: "1 ms to 1000 years" })
            }
            Some(Uniqueness { key: Some(key), .. }) if key.contains('\0') => {
                Err(Error::OutOfRange { what: "the uniqueness key", value: "text with U+0000".to_owned(), range: "text without it" })
            }
            _ => self.run.check(),
        }
    }
}

/// Keys are hashed as text, which the database has without NUL.
fn check_key(key: String) -> Result<String, Error> {
    if !key.contains('\0') {
        return Ok(key);
    }
    let value = key.chars().take(32).collect::<String>().escape_debug().to_string();
    Err(Error::OutOfRange { what: "the ordering key", value, range: "a text without NUL" })
}

impl Run {
    fn check(self) -> Result<(), Error> {
        const EARLIEST: i64 = 0;
        const LATEST: i64 = 253_402_300_799; // the last second of 9999
        const FARTHEST: u64 = 94_608_000_000; // 3,000 years, in seconds
        let out = |value: String| Error::OutOfRange { what: "the time to run at", value, range: "within the years 1970 to 9999" };
        match self {
            Self::At(time) if !(EARLIEST..=LATEST).contains(&time.timestamp()) => Err(out(time.to_string())),
            Self::After(wait) if wait.as_secs() > FARTHEST => Err(out(format!("{} seconds from now", wait.as_secs()))),
            Self::Now | Self::At(_) | Self::After(_) => Ok(()),
        }
    }

    pub(super) fn options(self) -> RunOptions {
        RunOptions { run_at: self.at(), after: self.after_ms().map(|ms| ms / 1000.0) }
    }

    /// The time given.
    pub(super) fn at(self) -> Option<DateTime<Utc>> {
        if let Self::At(time) = self { Some(time) } else { None }
    }

    /// The wait given, in milliseconds.
    pub(super) fn after_ms(self) -> Option<f64> {
        if let Self::After(wait) = self { Some(wait.as_secs_f64() * 1000.0) } else { None }
    }

    /// When that is, by the database's clock, unless it is now or has been.
    pub(super) fn due(self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Now => None,
            Self::At(time) => Some(time),
            Self::After(wait) => now.checked_add_signed(chrono::Duration::from_std(wait).ok()?),
        }
        .filter(|time| *time > now)
    }
}

/// The methods with which a builder that has `terms`, its own (`self mut`) or borrowed (`self`), lets its caller change them.
macro_rules! terms_methods {
    ($this:ident $($mutable:ident)?) => {
        /// Not before this long from now, by the database's clock. At most 3,000 years.
        pub fn after($($mutable)? $this, wait: std::time::Duration) -> Self {
            $this.terms.run = crate::enqueue::terms::Run::After(wait);
            $this
        }

        /// Not before this time, which may have passed already. From 1970 to 9999.
        pub fn at($($mutable)? $this, time: chrono::DateTime<chrono::Utc>) -> Self {
            $this.terms.run = crate::enqueue::terms::Run::At(time);
            $this
        }

        /// With this priority instead of the type's; higher runs first.
        pub fn priority($($mutable)? $this, priority: i16) -> Self {
            $this.terms.priority = priority;
            $this
        }

        /// Into this queue instead of the type's. A worker that serves only named queues must name it.
        pub fn queue($($mutable)? $this, queue: impl Into<String>) -> Self {
            $this.terms.queue = std::borrow::Cow::Owned(queue.into());
            $this
        }

        /// With this many attempts instead of the type's; at least 1.
        pub fn max_attempts($($mutable)? $this, max_attempts: i16) -> Self {
            $this.terms.max_attempts = max_attempts;
            $this
        }

        /// Under this ordering key instead of the job's own ([`Job::ordering_key`](crate::Job::ordering_key)). Of any length; without NUL.
        ///
        /// Jobs of one key in one queue run one at a time, in the order in which their enqueues committed. So this enqueue waits for transactions
        /// that have enqueued under the key and are open still (now and then for those of another key: there are 1024 locks), and others
        /// wait for this one's. Two transactions that enqueue under several keys, one after the other, may wait for each other: the server
        /// then ends one of them. Enqueue together, by `enqueue_all` or in a `Batch`: that locks keys in one order.
        pub fn key($($mutable)? $this, key: impl Into<String>) -> Self {
            $this.terms.key = Some(key.into());
            $this
        }

        /// With this policy on dead jobs of its ordering key instead of the type's.
        pub fn key_policy($($mutable)? $this, key_policy: crate::KeyPolicy) -> Self {
            $this.terms.key_policy = key_policy;
            $this
        }
    };
}
pub(super) use terms_methods;

/// The methods with which a builder that has `terms` lets its caller make one job unique.
macro_rules! unique_methods {
    ($this:ident) => {
        /// Unless a job of this type with this key holds it in this queue. The key may be any text without U+0000, of any length, and goes before
        /// the one that the type's fields make.
        ///
        /// The handle says what came of it: [`JobHandle::outcome`](crate::JobHandle::outcome). Producers with the same key wait for each other's
        /// transactions; a rollback gives the key back. Exact at every isolation level: above read committed, a conflict with what your snapshot
        /// does not show is a serialization failure. A transaction that takes several keys in another order than others do may be ended as a
        /// deadlock.
        pub fn unique(mut $this, key: impl Into<String>) -> Self {
            $this.terms.unique.get_or_insert_default().key = Some(key.into());
            $this
        }

        /// How long the key is held, instead of what the type says. Default: [`While::Live`](crate::While::Live).
        pub fn unique_while(mut $this, held: crate::While) -> Self {
            $this.terms.unique.get_or_insert_default().held = Some(held);
            $this
        }

        /// What becomes of this enqueue if the key is held, instead of what the type says. Default: [`OnConflict::Keep`](crate::OnConflict::Keep).
        pub fn on_conflict(mut $this, on_conflict: crate::OnConflict) -> Self {
            $this.terms.unique.get_or_insert_default().on_conflict = Some(on_conflict);
            $this
        }
    };
}
pub(super) use unique_methods;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_from_the_databases_clock_and_a_time_that_has_passed_is_now() {
        let now = DateTime::UNIX_EPOCH + chrono::Duration::days(20_000);
        let second = Duration::from_secs(1);
        assert_eq!(Run::Now.due(now), None);
        assert_eq!(Run::At(now - second).due(now), None);
        assert_eq!(Run::After(Duration::ZERO).due(now), None);
        assert_eq!(Run::At(now + second).due(now), Some(now + second));
        assert_eq!(Run::After(second).due(now), Some(now + second));
        assert!(Run::After(Duration::from_hours(26_280_000)).due(now).is_some());
    }
}
