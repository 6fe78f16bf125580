//! All options of `#[job(..)]`.
//!
//! The macro turns most keys into calls to the methods with the same names, so an editor shows the method's documentation for the key. All
//! methods are `const`, so a job type causes no work at startup. The macro checks most values at compile time.
//! [`Registry`](crate::registry::Registry) also checks types that are written without the macro.

use std::time::Duration;

use crate::define::{Backoff, Durability, KeyPolicy, Limit, Priority, Retain, StateKey, Unique};

/// Options of a job type, such as its name, queue, retries and timeout.
///
/// A job type that is implemented without the macro creates its options as follows:
///
/// ```
/// use queue_core::options::Options;
/// use std::time::Duration;
///
/// const EMAIL: Options = Options::new("email").queue("mail").max_attempts(5).timeout(Duration::from_secs(30));
/// assert_eq!((EMAIL.name, EMAIL.queue, EMAIL.max_attempts), ("email", "mail", 5));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Stored name of the job type; see [`Options::new`].
    pub name: &'static str,
    /// Former names of the job type; see [`Options::aliases`].
    pub aliases: &'static [&'static str],
    /// Version of the payload, from 1 to 9999; see [`Options::version`].
    pub version: u16,
    /// Queue of the jobs, unless an enqueue chooses another queue; see [`Options::queue`].
    pub queue: &'static str,
    /// Priority of the jobs; see [`Options::priority`].
    pub priority: i16,
    /// Maximum number of attempts before a job becomes a dead letter; see [`Options::max_attempts`].
    pub max_attempts: i16,
    /// Delay after a failed attempt; see [`Options::backoff`].
    pub backoff: Backoff,
    /// Maximum duration of an attempt, `None` for no limit; see [`Options::timeout`].
    pub timeout: Option<Duration>,
    /// Maximum delay before a job starts, `None` if jobs do not expire; see [`Options::expires`].
    pub expires: Option<Duration>,
    /// Retention of completed, cancelled and expired jobs; see [`Options::retain`].
    pub retain: Retain,
    /// Durability of an enqueue in its own transaction; see [`Options::durability`].
    pub durability: Durability,
    /// Whether the handler and the completion share one transaction; see [`Options::transactional`].
    pub transactional: bool,
    /// Whether the handler has a durable context; see [`Options::durable`].
    pub durable: bool,
    /// Policy for dead letters of an ordering key; see [`Options::key_policy`].
    pub key_policy: KeyPolicy,
    /// Whether the type defines a fairness key; see [`Options::fair`].
    pub fair: bool,
    /// State types that the handler requires; see [`Options::state`].
    pub state: &'static [StateKey],
    /// Uniqueness settings, `None` if jobs are not unique; see [`Options::unique`].
    pub unique: Option<Unique>,
    /// Concurrency limits and rate limits; see [`Options::limit`].
    pub limits: &'static [Limit],
    /// Cron expression of the type's schedule, `None` if the type has no cron schedule; see [`Options::cron`].
    pub cron: Option<&'static str>,
    /// Interval of the type's schedule, `None` if the type has no interval schedule; see [`Options::every`].
    pub every: Option<Duration>,
    /// Time zone of the cron expression, `None` for UTC; see [`Options::tz`].
    pub tz: Option<&'static str>,
    /// Maximum number of jobs in a batch, `None` if a handler runs one job at a time; see [`Options::batch`].
    pub batch: Option<usize>,
    /// Maximum time that a claimed job waits for its batch to fill; see [`Options::batch_wait`].
    pub batch_wait: Duration,
    /// Maximum size of an attempt's log in bytes, `None` if logs are not stored; see [`Options::keep_logs`].
    pub keep_logs: Option<usize>,
    /// Name of the keyring that encrypts payloads, `None` for unencrypted payloads; see [`Options::seal`].
    pub seal: Option<&'static str>,
}

impl Options {
    /// Creates the options of the job type `name`, with default values for all other options.
    ///
    /// Jobs are stored under this name. After a rename, waiting jobs are still stored under the old name. Workers of the new release run
    /// these jobs only if the [`aliases`](Options::aliases) contain the old name. The macro defaults to the struct's name in snake case.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            version: 1,
            queue: "default",
            priority: Priority::DISCOVERED,
            max_attempts: 20,
            backoff: Backoff::DEFAULT,
            timeout: None,
            expires: None,
            retain: Retain::Default,
            durability: Durability::Full,
            transactional: false,
            durable: false,
            key_policy: KeyPolicy::Block,
            fair: false,
            state: &[],
            unique: None,
            limits: &[],
            cron: None,
            every: None,
            tz: None,
            batch: None,
            batch_wait: Duration::ZERO,
            keep_logs: None,
            seal: None,
        }
    }

    /// Sets a cron schedule, as in `cron = "30 4 * * MON-FRI"`. Workers that run this type enqueue a job with the default payload at the
    /// times that match the expression. An expression has five fields, or six fields with the seconds first, or is a nickname such as
    /// `@daily`. The schedule has the same name as the type. `Worker::schedule` offers more settings.
    #[must_use]
    pub const fn cron(mut self, expression: &'static str) -> Self {
        self.cron = Some(expression);
        self
    }

    /// Sets an interval schedule, as in `every = "15m"`. Workers enqueue jobs as with [`Options::cron`], but at every multiple of the
    /// interval since 1970. The interval is one second to 365 days.
    #[must_use]
    pub const fn every(mut self, interval: Duration) -> Self {
        self.every = Some(interval);
        self
    }

    /// Sets the time zone of the cron expression, as in `tz = "Europe/Berlin"`. The zone must be in the IANA database. Default: UTC.
    #[must_use]
    pub const fn tz(mut self, zone: &'static str) -> Self {
        self.tz = Some(zone);
        self
    }

    /// Sets the maximum number of jobs in a batch, as in `batch = 500`, from 2 to 10,000. The handler is a
    /// [`BatchHandler`](crate::batch::BatchHandler). By default a handler runs one job at a time.
    ///
    /// A batch occupies one slot of its queue. Retried jobs run in smaller batches; see [`most_together`](crate::batch::most_together).
    #[must_use]
    pub const fn batch(mut self, most: usize) -> Self {
        self.batch = Some(most);
        self
    }

    /// Sets the maximum time that a claimed job waits for its batch to fill while a slot is free, as in `batch_wait = "200ms"`. The
    /// maximum is one minute. By default a batch starts with the jobs that are available.
    #[must_use]
    pub const fn batch_wait(mut self, wait: Duration) -> Self {
        self.batch_wait = wait;
        self
    }

    /// Stores log events of the handler at `INFO` and above, as in `keep_logs = "64KiB"`. The value is the maximum log size per attempt,
    /// from 1 B to 1 MiB. If a log is longer, its beginning and its end are stored, with the size of the omitted middle. By default logs
    /// are not stored.
    ///
    /// The option requires the layer `queue_worker::logs()` in the program's subscriber, which `queue_worker::main!` installs. Logs are
    /// stored unencrypted. Not available with `batch`.
    #[must_use]
    pub const fn keep_logs(mut self, bytes: usize) -> Self {
        self.keep_logs = Some(bytes);
        self
    }

    pub(crate) const MAX_LOG_BYTES: usize = 1024 * 1024;

    /// Encrypts stored payloads with the keyring of this name, as in `seal = "customers"`. Each producer and each worker must provide the
    /// keyring with [`use_keyring`](crate::use_keyring). By default payloads are not encrypted.
    ///
    /// Payloads that are already stored unencrypted remain readable. Only payloads are encrypted, including payloads of schedules.
    /// Metadata, outputs, errors and checkpoints are not encrypted. `docs/SEALED.md` describes the protection, its limits, and the
    /// rotation of keys.
    #[cfg(feature = "seal")]
    #[must_use]
    pub const fn seal(mut self, keyring: &'static str) -> Self {
        self.seal = Some(keyring);
        self
    }

    /// Not available without the feature `seal`.
    #[cfg(not(feature = "seal"))]
    #[doc(hidden)]
    #[must_use]
    pub const fn seal(self, _: &'static str) -> Self
    where
        for<'a> &'a Self: WithSeal,
    {
        self
    }

    pub(crate) const MAX_BATCH: usize = 10_000;
    pub(crate) const MAX_BATCH_WAIT: Duration = Duration::from_mins(1);

    /// Sets former names under which jobs of this type may still be stored, as in `aliases = ["old_name"]`. New jobs are stored under the
    /// current name.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Sets the version of the payload, as in `version = 2`, from 1 to 9999. Default: 1. Increase the version when the struct cannot
    /// deserialize payloads that an earlier release enqueued. Convert these payloads with `upgrade = from_v1`
    /// ([`JobType::upgrade`](crate::JobType::upgrade)).
    ///
    /// Jobs are enqueued with this version. A worker runs jobs of this version and of all earlier versions. Jobs of a newer version wait
    /// for workers that support this version.
    #[must_use]
    pub const fn version(mut self, version: u16) -> Self {
        self.version = version;
        self
    }

    /// Sets the queue of the jobs, as in `queue = "mail"`. An enqueue can choose another queue. Default: `default`.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the priority, as in `priority = 150`, from -32768 to 32767. Jobs of higher priority run first. Default: 100. See [`Priority`]
    /// for named values.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the maximum number of attempts before a job becomes a dead letter, as in `max_attempts = 5`, from 1 to 32767. Default: 20.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: i16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Sets the delay after a failed attempt, as in `backoff = exponential("1s", max = "10m", jitter = 0.1)`. Other forms are `fixed(..)`
    /// and `linear(..)`. Default: exponential from 5 s to at most 6 h, with a jitter of 0.1.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the maximum duration of an attempt, as in `timeout = "30s"`. An attempt that exceeds the timeout fails, and the handler's
    /// future is dropped. By default there is no limit.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the maximum delay before a job starts, as in `expires = "10m"`. The delay is counted from the enqueue, or from the scheduled
    /// time of the job. A job that has not started within the delay expires. An expired job does not run, and its dependents are
    /// notified. By default jobs do not expire.
    ///
    /// A job has started once an attempt or a crash has been charged, so neither a retried job nor a job of a crashed process expires. A
    /// job that was released without a charge, by a shutdown or a snooze, has not started. An enqueue can set a different expiry:
    /// [`Enqueue::expires_at`](crate::Enqueue::expires_at).
    #[must_use]
    pub const fn expires(mut self, time: Duration) -> Self {
        self.expires = Some(time);
        self
    }

    /// Sets the retention of completed, cancelled and expired jobs, as in `retain = "30d"`. With `retain = "none"` a completed job is
    /// deleted immediately. Default: the retention of the store.
    ///
    /// Use a retention longer than the store's for only a few jobs: when the store drops a day partition, it moves the rows of such jobs.
    /// If the retention is shorter than the store's, workers delete expired history about once a minute. If workers declare different
    /// retentions, the declaration of the worker that started last applies. Dead letters have a separate retention, the worker's
    /// `dead_retention`.
    #[must_use]
    pub const fn retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }

    /// Sets the durability of enqueues that have their own transaction. With the default, `full`, an enqueue waits until its commit is on
    /// disk. With `relaxed`, it does not wait; see [`Durability::Relaxed`] for the risk. Has no effect in the caller's transaction.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Runs the handler and the completion of the job in one transaction, available as
    /// [`Context::transaction`](crate::Context::transaction). By default the handler and the completion use separate transactions. Not
    /// available with `durable` or `batch`.
    ///
    /// Benefit: all writes of the handler in this transaction take effect exactly once, because they commit together with the completion.
    /// A failure, a panic, a timeout or the end of the process rolls the transaction back, and the attempt is charged as usual. Handlers
    /// of other types can begin such a transaction with [`Context::begin`](crate::Context::begin).
    ///
    /// Cost: each running job occupies a connection of the pool and needs its own commit, so the throughput is far lower than that of
    /// plain jobs. If no connection is free, a job waits, so configure at least as many pool connections as slots. A long handler delays
    /// vacuum. While the handler runs, idle workers keep polling instead of sleeping until a notification. They cannot rely on
    /// notifications, because an already open transaction may enqueue jobs without sending one. A failed statement in the transaction
    /// fails the attempt, unless the statement ran in a nested transaction. Effects outside of the transaction may still be repeated.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// Gives the handler a [`Durable`](crate::durable::Durable) context, whose steps run once. If an attempt ends early, the next attempt
    /// does not repeat the journaled steps. By default each attempt runs all code. Not available with `transactional` or `batch`.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Sets whether a dead letter blocks its ordering key, as in `key_policy = skip`; see [`KeyPolicy`]. With the default, `block`, no
    /// job of the key runs until an operator requeues or discards the dead letter.
    #[must_use]
    pub const fn key_policy(mut self, key_policy: KeyPolicy) -> Self {
        self.key_policy = key_policy;
        self
    }

    /// Enables fair queueing by the key that an expression returns for each job, as in `fair = self.tenant`. Keys with waiting jobs take
    /// turns, regardless of the number of waiting jobs. Workers claim one job of each key before the second job of any key. Fairness
    /// applies within one queue and one priority, and higher priorities go first. By default the oldest job runs first.
    ///
    /// `set_weight` gives a key more turns than other keys. Jobs of one key start in the order in which they became ready. Retried, snoozed
    /// and released jobs go behind the other jobs of their key. Jobs that are enqueued in SQL without a key share one turn.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Declares the state types that the handler requests from its context, as in `state(Mailer, Db)`. A worker that lacks a declared type
    /// refuses to start.
    #[must_use]
    pub const fn state(mut self, state: &'static [StateKey]) -> Self {
        self.state = state;
        self
    }

    /// Makes jobs unique, as in `unique(fields(a, b), while = live, on_conflict = keep)`. A queue then accepts only one job at a time with
    /// the same values of `a` and `b`. [`While`](crate::options::While) defines how long a job holds its key.
    /// [`OnConflict`](crate::OnConflict) defines the reaction to an enqueue whose key is already held. By default jobs are not unique.
    #[must_use]
    pub const fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// Limits the concurrency and start rate of this type, as in `limit(concurrency = 10, rate = "30/1m", burst = 5)`. The limit applies to
    /// all workers together. `limit(name = "stripe", concurrency = 3)` shares the limit among all types that use the name. The option may
    /// be repeated with different names; see [`Limit`]. By default, only worker slots limit concurrency.
    #[must_use]
    pub const fn limit(mut self, limits: &'static [Limit]) -> Self {
        self.limits = limits;
        self
    }
}

/// Bound that no type satisfies, so that a call to `seal` without the feature `seal` fails to compile with the message below.
#[cfg(not(feature = "seal"))]
#[diagnostic::on_unimplemented(
    message = "`seal` needs the feature `seal` of `queue-core`",
    label = "not built in",
    note = "enable it in Cargo.toml: `queue-core = {{ version = \"..\", features = [\"seal\"] }}`"
)]
pub trait WithSeal {}
