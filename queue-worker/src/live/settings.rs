//! The one list of a worker's settings. From an entry come the field of [`Config`](super::Config), the method of [`Worker`](crate::Worker), the
//! option of the command line, its variable and the key of the settings file. Those that look different in each of them stand where
//! they are used: the store, the queues, the durability, and what is not the worker's but its process's.

/// Hands the list to another macro. An entry is what is said about it, to programs and in `--help` alike; its name; its variable, and what
/// stands for its value in `--help`; the type of the field, what the method takes, what people write; the default.
macro_rules! each_setting {
    ($to:ident) => {
        $to! {
            /// Shown to operators. Default: the host's name
            name("QUEUE_NAME", "NAME"): String, impl Into<String>, String = host();
            /// How many handlers of each queue run at a time, where none has a number of its own. Default 50: enough to hide the waits of
            /// handlers that call other services, few enough for a database pool behind them
            concurrency("QUEUE_CONCURRENCY", "N"): usize, usize, Whole = 50;
            /// How long jobs of a lower priority may be passed over before some of them go first. Default: for ever, so that priority is
            /// strict
            aging("QUEUE_AGING", "DURATION"): Option<Duration>, Duration, Span = None;
            /// How often it looks for jobs unasked. Default 1 s: the most that a lost notification can cost
            poll_interval("QUEUE_POLL_INTERVAL", "DURATION"): Duration, Duration, Span = Duration::from_secs(1);
            /// How long it may be silent before others take its jobs. Default 30 s; not under 1 s. A handler may take longer: the
            /// heartbeat has its own thread
            lease_ttl("QUEUE_LEASE_TTL", "DURATION"): Duration, Duration, Span = Duration::from_secs(30);
            /// How long running handlers may go on after a shutdown was asked for. Default 20 s: under the 30 s after which most
            /// supervisors kill
            grace("QUEUE_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(20);
            /// How long the history of completed, cancelled and expired jobs is kept, unless their type says otherwise. Default 7 days; not over
            /// 100 days, as each day of history slows statements down
            retention("QUEUE_RETENTION", "DURATION"): Duration, Duration, Span = Duration::from_hours(7 * 24);
            /// How long dead letters are kept. Default: until somebody acts
            dead_retention("QUEUE_DEAD_RETENTION", "DURATION"): Option<Duration>, Duration, Span = None;
            /// How long a running handler may go on after its job was cancelled, before its future is dropped. Default 10 s
            cancel_grace("QUEUE_CANCEL_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(10);
            /// What it does where the database takes no writes when it starts, as a standby: wait until it does, or exit. Default: wait
            on_standby("QUEUE_ON_STANDBY", "wait|exit"): OnStandby, OnStandby, OnStandby = OnStandby::Wait;
            /// How many jobs one claim takes at most. Default 500: above that a claim gets slower as fast as it gets larger
            batch("QUEUE_BATCH", "N"): usize, usize, Whole = 500;
            /// How many MiB of payloads it has in hand at most, of jobs that wait for a slot and that run. Beyond that large jobs are left to others,
            /// or until some have ended. Default 512; not under 192
            payload_memory("QUEUE_PAYLOAD_MEMORY", "MIB"): usize, usize, Whole = 512;
            /// How many connections of its own it has at most, besides the pool. Default 12; not under 4, which is what it has while it is
            /// idle: one for its heartbeat, one that listens, one that claims, one for all else
            connections("QUEUE_CONNECTIONS", "N"): usize, usize, Whole = 12;
        }
    };
}

pub(crate) use each_setting;
