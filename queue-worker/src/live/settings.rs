//! The single list of a worker's settings. Each entry generates a field of [`Config`](super::Config), a method of [`Worker`](crate::Worker), a
//! command-line option, its environment variable and a key of the settings file. Settings whose forms differ are defined where they are used: store,
//! queues, durability, and settings of the process.

/// Passes the list to another macro. An entry consists of its documentation, also shown by `--help`; its name; its environment variable and the
/// placeholder of its value in `--help`; the types of the field, of the method's argument and of the text form; and its default.
macro_rules! each_setting {
    ($to:ident) => {
        $to! {
            /// Name shown to operators. Default: the host name
            name("QUEUE_NAME", "NAME"): String, impl Into<String>, String = host();
            /// Maximum number of handlers that run at a time in each queue without a concurrency of its own. Default 50: enough to hide the waits of
            /// handlers that call other services, few enough for a database pool behind them
            concurrency("QUEUE_CONCURRENCY", "N"): usize, usize, Whole = 50;
            /// How long jobs of a lower priority may be passed over before some of them go first. Default: for ever, so that priority is strict
            aging("QUEUE_AGING", "DURATION"): Option<Duration>, Duration, Span = None;
            /// Interval at which it polls for jobs without a notification. Default 1 s: the most that a lost notification can cost
            poll_interval("QUEUE_POLL_INTERVAL", "DURATION"): Duration, Duration, Span = Duration::from_secs(1);
            /// How long it may be silent before other workers take its jobs. Default 30 s; at least 1 s. A handler may take longer: the heartbeat has
            /// its own thread
            lease_ttl("QUEUE_LEASE_TTL", "DURATION"): Duration, Duration, Span = Duration::from_secs(30);
            /// How long running handlers may continue after a shutdown request. Default 20 s: below the 30 s after which most supervisors kill
            grace("QUEUE_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(20);
            /// How long completed, cancelled and expired jobs are kept, unless their type sets it. Default 7 days; at most 100 days, as each day of
            /// history slows statements down
            retention("QUEUE_RETENTION", "DURATION"): Duration, Duration, Span = Duration::from_hours(7 * 24);
            /// How long dead letters are kept. Default: until an operator deletes or requeues them
            dead_retention("QUEUE_DEAD_RETENTION", "DURATION"): Option<Duration>, Duration, Span = None;
            /// How long a running handler may continue after its job was cancelled, before its future is dropped. Default 10 s
            cancel_grace("QUEUE_CANCEL_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(10);
            /// What to do if the database accepts no writes at the start, as a standby does: wait until it does, or exit. Default: wait
            on_standby("QUEUE_ON_STANDBY", "wait|exit"): OnStandby, OnStandby, OnStandby = OnStandby::Wait;
            /// Maximum number of jobs per claim. Default 500: larger claims take proportionally longer
            batch("QUEUE_BATCH", "N"): usize, usize, Whole = 500;
            /// Maximum memory for payloads in MiB, of waiting and running jobs. Beyond that, large jobs are left to other workers or until others
            /// have finished. Default 512; at least 192
            payload_memory("QUEUE_PAYLOAD_MEMORY", "MIB"): usize, usize, Whole = 512;
            /// Maximum number of the worker's own connections, besides the pool. Default 12; at least 4, which is what it uses while idle: one for
            /// the heartbeat, one that listens, one that claims, one for all else
            connections("QUEUE_CONNECTIONS", "N"): usize, usize, Whole = 12;
        }
    };
}

pub(crate) use each_setting;
