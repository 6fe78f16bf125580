//! Every option of `#[job(..)]`, documented once.
//!
//! The macro turns each key into a call of the method of that name, so hovering over a key shows the text here. All of it is `const`:
//! a job type costs nothing at start. Values are checked by the macro at compile time and again by [`Registry`](crate::Registry) for
//! types written without it.

use std::time::Duration;

use crate::define::{Backoff, Durability, KeyPolicy, Limit, Priority, Retain, StateKey, Unique};

/// What is fixed about a job type: its name, where it goes, how often and how long it is tried.
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
    /// The options of a job type called `name`, all else at its default.
    ///
    /// The name is what is stored: renaming it strands the jobs that wait under the old one, unless that is kept among the
    /// [`aliases`](Options::aliases). The macro's default is the struct's name in snake case.
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

    /// `cron = "30 4 * * MON-FRI"`: workers that run this type enqueue a job of it, with its default payload, at the times of this expression: five
    /// fields, or six with seconds first; `@daily` and its like. The schedule has the name of the type. More is said with `Worker::schedule`.
    #[must_use]
    pub const fn cron(mut self, expression: &'static str) -> Self {
        self.cron = Some(expression);
        self
    }

    /// `every = "15m"`: as [`Options::cron`], at every multiple of this since 1970. From one second to 365 days.
    #[must_use]
    pub const fn every(mut self, interval: Duration) -> Self {
        self.every = Some(interval);
        self
    }

    /// `tz = "Europe/Berlin"`: the time zone of the cron expression, by its name in the IANA database. Default UTC.
    #[must_use]
    pub const fn tz(mut self, zone: &'static str) -> Self {
        self.tz = Some(zone);
        self
    }

    /// `batch = 500`: the handler takes up to so many jobs at a time, 2 to 10,000: a [`BatchHandler`](crate::BatchHandler). Default: one at a time.
    ///
    /// A batch takes one slot of its queue. Jobs that were tried before run in smaller ones: see [`most_together`](crate::most_together).
    #[must_use]
    pub const fn batch(mut self, most: usize) -> Self {
        self.batch = Some(most);
        self
    }

    /// `batch_wait = "200ms"`: how long a job waits for a fuller batch while a slot is free, from its claim on; at most a minute. Default: not at all,
    /// a free slot takes what is there.
    #[must_use]
    pub const fn batch_wait(mut self, wait: Duration) -> Self {
        self.batch_wait = wait;
        self
    }

    /// `keep_logs = "64KiB"`: what a handler logs at `INFO` and above is kept with its attempt, from 1 B to 1 MiB of it: the begin and the end, and how
    /// much was left out between them. Default: it is not kept.
    ///
    /// It takes `queue_worker::logs()` in the program's subscriber, which `queue_worker::main!` has. It is stored in clear. Not with `batch`.
    #[must_use]
    pub const fn keep_logs(mut self, bytes: usize) -> Self {
        self.keep_logs = Some(bytes);
        self
    }

    pub(crate) const LARGEST_LOG: usize = 1024 * 1024;

    /// `seal = "customers"`: payloads are stored encrypted, with the keys of this name that are given to each process with
    /// [`use_keyring`](crate::use_keyring): producers and workers. Default: in clear.
    ///
    /// What is stored in clear already is read all the same. Encrypted are payloads, those of schedules too, and nothing else: not metadata, not outputs,
    /// not errors, not checkpoints. `docs/SEALED.md` has what is hidden, what is not, and how keys are changed.
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

    pub(crate) const LARGEST_BATCH: usize = 10_000;
    pub(crate) const LONGEST_BATCH_WAIT: Duration = Duration::from_mins(1);

    /// `aliases = ["old_name"]`: names under which jobs of this type may still be stored. New ones are enqueued under the name.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// `version = 2`: which version of its payload this struct is, from 1 to 9999. Default 1. Say the next one when this struct cannot read what an
    /// earlier release enqueued, and how that is read by `upgrade = from_v1` ([`JobType::upgrade`](crate::JobType::upgrade)).
    ///
    /// Jobs are enqueued with it. A worker runs jobs of this version and of all before it, and leaves those of a newer one to workers that know it.
    #[must_use]
    pub const fn version(mut self, version: u16) -> Self {
        self.version = version;
        self
    }

    /// `queue = "mail"`: the queue a job goes to unless it is enqueued elsewhere. Default `default`.
    #[must_use]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        self.queue = queue;
        self
    }

    /// `priority = 150`: higher runs first, -32768 to 32767. Default 100; see [`Priority`] for the named tiers.
    #[must_use]
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// `max_attempts = 5`: how many times a job is tried before it is a dead letter, 1 to 32767. Default 20.
    #[must_use]
    pub const fn max_attempts(mut self, max_attempts: i16) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// `backoff = exponential("1s", max = "10m", jitter = 0.1)`: how long to wait after a failed attempt. Also `fixed(..)` and
    /// `linear(..)`. Default: exponential from 5 s to at most 6 h with a jitter of 0.1.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// `timeout = "30s"`: how long one attempt may take before its future is dropped and the attempt counts as failed. Default: none.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// `expires = "10m"`: how long after it may run first (its enqueue, or the time that it is put off to) a job may begin. One that has not begun by
    /// then is over, as expired: it is not run, and whoever waits for it is told. Default: it may begin at any time.
    ///
    /// It has begun once an attempt was charged: a retry goes on, and so does one whose process ended. What was given back uncharged, by a shutdown or
    /// a snooze, has not begun. An enqueue may say another time: [`Enqueue::expires_at`](crate::Enqueue::expires_at).
    #[must_use]
    pub const fn expires(mut self, time: Duration) -> Self {
        self.expires = Some(time);
        self
    }

    /// `retain = "30d"`: how long the record of a completed, cancelled or expired job is kept; `retain = "none"`: a completed one is deleted at once.
    /// Default: for the store's retention.
    ///
    /// What is kept for longer outlives its day: rows move when the day is dropped, so keep few jobs long. What is kept for less is deleted by
    /// workers that run, about every minute, once its time is over. The worker that started last says which it is. Dead letters have a
    /// retention of their own, the worker's `dead_retention`.
    #[must_use]
    pub const fn retain(mut self, retain: Retain) -> Self {
        self.retain = retain;
        self
    }

    /// `durability = relaxed`: whether an enqueue that is a transaction of its own waits for the disk; see [`Durability::Relaxed`] for what is
    /// risked. In a transaction of the caller's it changes nothing. Default `full`: it waits.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// `transactional`: the handler and the job's completion are one transaction, which the handler reaches with
    /// [`Context::transaction`](crate::Context::transaction). Default: they are not. Not with `durable`, nor with `batch`.
    ///
    /// What it gives: whatever the handler writes on that transaction happens exactly once, for it is committed together with the completion. A
    /// failure, a panic, a timeout or the end of the process takes it back, and is charged as ever. It is
    /// [`Context::begin`](crate::Context::begin), which any type has for the part of its handler that it chooses, done for the whole handler.
    ///
    /// What it costs: each running job takes one of the pool's connections, and a commit of its own, so throughput is far below that of plain jobs;
    /// jobs beyond the pool's connections wait for one, so let the pool have as many as there are slots. A long handler holds back vacuum and
    /// keeps other workers from sleeping deeply. A statement on the transaction that fails fails the attempt unless it ran in a nested
    /// transaction. Effects elsewhere are as repeatable as ever.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// `durable`: an attempt may end half-way and the next one goes on: the handler is given a [`Durable`](crate::Durable), whose steps are done once.
    /// Default: each attempt begins anew. Not with `transactional`, nor with `batch`.
    #[must_use]
    pub const fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// `key_policy = skip`: what becomes of an ordering key whose first job is dead; see [`KeyPolicy`]. Default `block`: it waits for an operator.
    #[must_use]
    pub const fn key_policy(mut self, key_policy: KeyPolicy) -> Self {
        self.key_policy = key_policy;
        self
    }

    /// `fair = self.tenant`: jobs of this type take turns by the key that this expression makes, as text: of any number of keys that have jobs
    /// waiting each has one claimed before the next has its second, however many one of them has. Within one queue and one priority; a higher
    /// priority goes first. Default: the oldest job goes first.
    ///
    /// A key that has more turns than others is `set_weight`'s. Jobs of one key are begun in the order in which they became ready; those that come
    /// back go to the end. A job that is enqueued without a key, from SQL, has the turn of all such jobs.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// `state(Mailer, Db)`: types that the handler asks its context for. A worker that was not given all of them refuses to start.
    #[must_use]
    pub const fn state(mut self, state: &'static [StateKey]) -> Self {
        self.state = state;
        self
    }

    /// `unique(fields(a, b), while = live, on_conflict = keep)`: jobs whose fields `a` and `b` are equal are unique: see [`While`](crate::While) for
    /// how long, and [`OnConflict`](crate::OnConflict) for what becomes of another. Within one queue. Default: jobs are not unique.
    #[must_use]
    pub const fn unique(mut self, unique: Unique) -> Self {
        self.unique = Some(unique);
        self
    }

    /// `limit(concurrency = 10, rate = "30/1m", burst = 5)`: how many of these run at once, and how many begin in a time, over all workers;
    /// `limit(name = "stripe", concurrency = 3)`: the same of all types that name it. May be given several times under several names: see [`Limit`].
    /// Default: as many as workers have slots.
    #[must_use]
    pub const fn limit(mut self, limits: &'static [Limit]) -> Self {
        self.limits = limits;
        self
    }
}

/// What has it can be sealed; nothing has.
#[cfg(not(feature = "seal"))]
#[diagnostic::on_unimplemented(
    message = "`seal` needs the feature `seal` of `queue-core`",
    label = "not built in",
    note = "turn it on in Cargo.toml: `queue-core = {{ version = \"..\", features = [\"seal\"] }}`"
)]
pub trait WithSeal {}
