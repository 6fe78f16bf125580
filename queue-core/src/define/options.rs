//! All options of `#[job(..)]`, each documented once.
//!
//! The macro turns each key into a call of the method with the same name, so an editor shows the documentation of that method on the key.
//! Everything here is `const`: a job type costs nothing at startup. The macro checks the values at compile time.
//! [`Registry`](crate::Registry) checks them again for types written without the macro.

use std::time::Duration;

use crate::define::{Backoff, Durability, KeyPolicy, Limit, Priority, Retain, StateKey, Unique};

/// Options of a job type: its name, its queue, its retries and its timeouts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// See [`Options::new`].
    pub name: &'static str,
    /// See [`Options::aliases`].
    pub aliases: &'static [&'static str],
    /// See [`Options::version`].
    pub version: u16,
    /// See [`Options::queue`].
    pub queue: &'static str,
    /// See [`Options::priority`].
    pub priority: i16,
    /// See [`Options::max_attempts`].
    pub max_attempts: i16,
    /// See [`Options::backoff`].
    pub backoff: Backoff,
    /// See [`Options::timeout`].
    pub timeout: Option<Duration>,
    /// See [`Options::expires`].
    pub expires: Option<Duration>,
    /// See [`Options::retain`].
    pub retain: Retain,
    /// See [`Options::durability`].
    pub durability: Durability,
    /// See [`Options::transactional`].
    pub transactional: bool,
    /// See [`Options::durable`].
    pub durable: bool,
    /// See [`Options::key_policy`].
    pub key_policy: KeyPolicy,
    /// See [`Options::fair`].
    pub fair: bool,
    /// See [`Options::state`].
    pub state: &'static [StateKey],
    /// See [`Options::unique`].
    pub unique: Option<Unique>,
    /// See [`Options::limit`].
    pub limits: &'static [Limit],
    /// See [`Options::cron`].
    pub cron: Option<&'static str>,
    /// See [`Options::every`].
    pub every: Option<Duration>,
    /// See [`Options::tz`].
    pub tz: Option<&'static str>,
    /// See [`Options::batch`].
    pub batch: Option<usize>,
    /// See [`Options::batch_wait`].
    pub batch_wait: Duration,
    /// See [`Options::keep_logs`].
    pub keep_logs: Option<usize>,
    /// See [`Options::seal`].
    pub seal: Option<&'static str>,
}

impl Options {
    /// Creates the options of a job type called `name`, with defaults for everything else.
    ///
    /// Jobs are stored under this name. After a rename, waiting jobs are stranded under the old name unless it is kept in the
    /// [`aliases`](Options::aliases). The macro defaults to the struct's name in snake case.
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

    /// `cron = "30 4 * * MON-FRI"`: workers that run this type enqueue a job with its default payload at the times of this expression. An
    /// expression has five fields, or six with seconds first, or is a nickname such as `@daily`. The schedule has the name of the type.
    /// `Worker::schedule` offers more settings.
    #[must_use]
    pub const fn cron(mut self, expression: &'static str) -> Self {
        self.cron = Some(expression);
        self
    }

    /// `every = "15m"`: as [`Options::cron`], at every multiple of this duration since 1970. From one second to 365 days.
    #[must_use]
    pub const fn every(mut self, interval: Duration) -> Self {
        self.every = Some(interval);
        self
    }

    /// `tz = "Europe/Berlin"`: time zone of the cron expression, as a name in the IANA database. Default UTC.
    #[must_use]
    pub const fn tz(mut self, zone: &'static str) -> Self {
        self.tz = Some(zone);
        self
    }

    /// `batch = 500`: maximum number of jobs that the handler takes at a time, 2 to 10,000. The handler is a
    /// [`BatchHandler`](crate::BatchHandler). Default: one job at a time.
    ///
    /// A batch takes one slot of its queue. Retried jobs run in smaller batches: see [`most_together`](crate::most_together).
    #[must_use]
    pub const fn batch(mut self, most: usize) -> Self {
        self.batch = Some(most);
        self
    }

    /// `batch_wait = "200ms"`: how long a claimed job waits for a fuller batch while a slot is free; at most one minute. Default: no wait,
    /// so a free slot takes the jobs that are there.
    #[must_use]
    pub const fn batch_wait(mut self, wait: Duration) -> Self {
        self.batch_wait = wait;
        self
    }

    /// `keep_logs = "64KiB"`: stores up to this size of what the handler logs at `INFO` and above, with its attempt. From 1 B to 1 MiB. Longer
    /// logs keep their beginning, their end and the length of what was omitted between them. Default: logs are not stored.
    ///
    /// This requires the layer `queue_worker::logs()` in the program's subscriber, which `queue_worker::main!` installs. Logs are stored
    /// unencrypted. Not available with `batch`.
    #[must_use]
    pub const fn keep_logs(mut self, bytes: usize) -> Self {
        self.keep_logs = Some(bytes);
        self
    }

    pub(crate) const MAX_LOG_BYTES: usize = 1024 * 1024;

    /// `seal = "customers"`: stores payloads encrypted, with the keys of this name. Each producer and each worker passes them to its
    /// process with [`use_keyring`](crate::use_keyring). Default: unencrypted.
    ///
    /// Payloads that are already stored unencrypted remain readable. Only payloads are encrypted, including those of schedules: not
    /// metadata, outputs, errors or checkpoints. `docs/SEALED.md` describes what is hidden, what is not, and how to rotate keys.
    #[cfg(feature = "seal")]
    #[must_use]
    pub const fn seal(mut self, keyring: &'static str) -> Self {
        self.seal = Some(keyring);
        self
    }

    /// Needs the feature `seal`.
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

    /// `aliases = ["old_name"]`: former names under which jobs of this type may still be stored. New jobs are stored under its name.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// `version = 2`: version of the payload, from 1 to 9999. Default 1. Increase it when this struct cannot read what an earlier release
    /// enqueued, and add `upgrade = from_v1` ([`JobType::upgrade`](crate::JobType::upgrade)) to read that.
    ///
    /// Jobs are enqueued with this version. A worker runs jobs of this version and of all earlier ones, and leaves newer ones to workers
    /// that support them.
    #[must_use]
    pub const fn version(mut self, version: u16) -> Self {
        self.version = version;
        self
    }

    /// `queue = "mail"`: queue of the jobs, unless the enqueue names another. Default `default`.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// `priority = 150`: priority from -32768 to 32767; jobs of higher priority run first. Default 100. See [`Priority`] for named values.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// `max_attempts = 5`: number of attempts before a job becomes a dead letter, 1 to 32767. Default 20.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: i16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// `backoff = exponential("1s", max = "10m", jitter = 0.1)`: delay after a failed attempt. Also `fixed(..)` and `linear(..)`. Default:
    /// exponential from 5 s to at most 6 h, with a jitter of 0.1.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// `timeout = "30s"`: maximum duration of an attempt. After it the handler's future is dropped, and the attempt has failed. Default: no
    /// limit.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// `expires = "10m"`: maximum delay before a job starts, counted from its enqueue or from the time it is scheduled for. A job that has
    /// not started by then ends as expired: it does not run, and everything that waits for it is notified. Default: it never expires.
    ///
    /// A job has started once an attempt was charged, so retries continue, and so does a job whose process ended. A job that was given back
    /// without a charge, by a shutdown or a snooze, has not started. An enqueue may set another time:
    /// [`Enqueue::expires_at`](crate::Enqueue::expires_at).
    #[must_use]
    pub const fn expires(mut self, time: Duration) -> Self {
        self.expires = Some(time);
        self
    }

    /// `retain = "30d"`: how long the record of a completed, cancelled or expired job is kept. With `retain = "none"` a completed job is
    /// deleted immediately. Default: the retention of the store.
    ///
    /// A retention above the store's moves rows when their day is dropped, so use it for few jobs. A shorter one is applied by running
    /// workers, about once a minute. The worker that started last determines the retention. Dead letters have a separate one, the worker's
    /// `dead_retention`.
    #[must_use]
    pub const fn retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }

    /// `durability = relaxed`: whether an enqueue in a transaction of its own waits for the disk. See [`Durability::Relaxed`] for the risk.
    /// It has no effect in a transaction of the caller. Default `full`: the enqueue waits.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// `transactional`: runs the handler and the job's completion in one transaction, available as
    /// [`Context::transaction`](crate::Context::transaction). Default: separate transactions. Not available with `durable` or `batch`.
    ///
    /// Benefit: everything the handler writes on that transaction happens exactly once, because it commits together with the completion. A
    /// failure, a panic, a timeout or the end of the process rolls it back and is charged as usual. This is
    /// [`Context::begin`](crate::Context::begin), which any type can use for a part of its handler, applied to the whole handler.
    ///
    /// Cost: each running job takes one of the pool's connections and a commit of its own, so throughput is far below that of plain jobs.
    /// Further jobs wait for a connection, so size the pool to the number of slots. A long handler delays vacuum and keeps other workers
    /// from sleeping deeply. A failed statement on the transaction fails the attempt, unless it ran in a nested transaction. Effects
    /// outside of the transaction may still be repeated.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// `durable`: gives the handler a [`Durable`](crate::Durable) context, whose steps run once. An attempt may end halfway, and the next
    /// one continues. Default: each attempt starts from the beginning. Not available with `transactional` or `batch`.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// `key_policy = skip`: whether a dead letter blocks its ordering key; see [`KeyPolicy`]. Default `block`: the key waits for an
    /// operator.
    #[must_use]
    pub const fn key_policy(mut self, key_policy: KeyPolicy) -> Self {
        self.key_policy = key_policy;
        self
    }

    /// `fair = self.tenant`: fair queueing by the key that this expression yields, as text. The keys with waiting jobs take turns: each has
    /// one job claimed before the next has its second, however many jobs each has. This applies within one queue and one priority; higher
    /// priorities go first. Default: oldest job first.
    ///
    /// `set_weight` gives a key more turns than others. Jobs of one key start in the order in which they became ready; returning jobs go to
    /// the end. Jobs enqueued without a key, from SQL, share one turn.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// `state(Mailer, Db)`: types that the handler requests from its context. A worker that lacks one of them refuses to start.
    #[must_use]
    pub const fn state(mut self, state: &'static [StateKey]) -> Self {
        self.state = state;
        self
    }

    /// `unique(fields(a, b), while = live, on_conflict = keep)`: allows one job at a time with equal fields `a` and `b` in a queue.
    /// [`While`](crate::While) defines for how long, and [`OnConflict`](crate::OnConflict) what happens to another enqueue. Default: jobs
    /// are not unique.
    #[must_use]
    pub const fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// `limit(concurrency = 10, rate = "30/1m", burst = 5)`: limits the running jobs and the starts of this type over all workers.
    /// `limit(name = "stripe", concurrency = 3)` shares the limit among all types that name it. May be given several times under different
    /// names: see [`Limit`]. Default: as many jobs as workers have slots.
    #[must_use]
    pub const fn limit(mut self, limits: &'static [Limit]) -> Self {
        self.limits = limits;
        self
    }
}

/// Implemented by types that can be sealed: none without the feature.
#[cfg(not(feature = "seal"))]
#[diagnostic::on_unimplemented(
    message = "`seal` needs the feature `seal` of `queue-core`",
    label = "not built in",
    note = "enable it in Cargo.toml: `queue-core = {{ version = \"..\", features = [\"seal\"] }}`"
)]
pub trait WithSeal {}
