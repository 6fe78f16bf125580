//! List of a worker's settings. Each entry generates a field of [`Config`](super::Config), a method of [`Worker`](crate::Worker) and a
//! command-line option. Each entry also generates an environment variable and a key of the settings file. The store, queues, durability and
//! process settings need other forms and are defined elsewhere.

/// Passes the list of settings to another macro.
///
/// An entry consists of:
///
/// - the documentation, which `--help` also shows
/// - the name, the environment variable and the `--help` placeholder
/// - the types of the field, of the method's argument and of the text form
/// - the default value
macro_rules! each_setting {
    ($to:ident) => {
        $to! {
            /// Name shown to operators. Default: the host name
            name("QUEUE_NAME", "NAME"): String, impl Into<String>, String = host();
            /// Maximum number of concurrent handlers in each queue without a separate concurrency setting. Default: 50. This suits
            /// handlers that often wait for other services, and does not overload the handlers' database pool
            concurrency("QUEUE_CONCURRENCY", "N"): usize, usize, Whole = 50;
            /// Waiting time after which some jobs of a lower priority are claimed before jobs of a higher priority. Default: none, so
            /// priorities are strict
            aging("QUEUE_AGING", "DURATION"): Option<Duration>, Duration, Span = None;
            /// Interval at which the worker polls for jobs without a notification. Default: 1 s. A job whose notification is lost waits
            /// for at most this interval
            poll_interval("QUEUE_POLL_INTERVAL", "DURATION"): Duration, Duration, Span = Duration::from_secs(1);
            /// Time without a heartbeat after which other workers recover the worker's jobs. Default: 30 s; at least 1 s. Handlers may
            /// run longer than this, because the heartbeat has its own thread
            lease_ttl("QUEUE_LEASE_TTL", "DURATION"): Duration, Duration, Span = Duration::from_secs(30);
            /// Time that running handlers have to finish after a shutdown request. Default: 20 s, because most supervisors kill a process
            /// after 30 s
            grace("QUEUE_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(20);
            /// Retention of completed, cancelled and expired jobs whose type sets no retention. Default: 7 days; at most 100 days,
            /// because each day of history slows statements down
            retention("QUEUE_RETENTION", "DURATION"): Duration, Duration, Span = Duration::from_hours(7 * 24);
            /// Retention of dead letters. Default: until an operator deletes or requeues them
            dead_retention("QUEUE_DEAD_RETENTION", "DURATION"): Option<Duration>, Duration, Span = None;
            /// Time that a running handler has to end after its job was cancelled, before the handler is dropped. Default: 10 s
            cancel_grace("QUEUE_CANCEL_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(10);
            /// Whether a starting worker waits or exits while the database accepts no writes, for example because it is a standby.
            /// Default: wait
            on_standby("QUEUE_ON_STANDBY", "wait|exit"): OnStandby, OnStandby, OnStandby = OnStandby::Wait;
            /// Maximum number of jobs per claim. Default: 500. Larger claims take proportionally longer
            batch("QUEUE_BATCH", "N"): usize, usize, Whole = 500;
            /// Maximum memory in MiB for payloads of waiting and running jobs. Beyond the maximum, large jobs wait for other jobs to
            /// finish, or are left to other workers. Default: 512; at least 192
            payload_memory("QUEUE_PAYLOAD_MEMORY", "MIB"): usize, usize, Whole = 512;
            /// Maximum number of the worker's own connections, in addition to the pool. Default: 12; at least 4, because an idle worker
            /// uses one connection each for the heartbeat, for notifications, for claims, and for all other statements
            connections("QUEUE_CONNECTIONS", "N"): usize, usize, Whole = 12;
        }
    };
}

pub(crate) use each_setting;
