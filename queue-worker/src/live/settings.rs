//! List of a worker's settings. Each entry generates a field of [`Config`](super::Config), a method of [`Worker`](crate::Worker), a
//! command-line option, an environment variable, and a key of the settings file. Settings that need different forms are defined where they
//! are used: store, queues, durability, and settings of the process.

/// Passes the list of settings to another macro.
///
/// An entry starts with its documentation, which `--help` also shows. Its name, environment variable and the placeholder of its value in
/// `--help` follow. The types of the field, of the method's argument and of the text form come next, and the default value is last.
macro_rules! each_setting {
    ($to:ident) => {
        $to! {
            /// Name shown to operators. Default: the host name
            name("QUEUE_NAME", "NAME"): String, impl Into<String>, String = host();
            /// Maximum number of concurrent handlers in each queue without its own concurrency. Default: 50. This suits handlers that often
            /// wait for other services, and does not overload a database pool behind them
            concurrency("QUEUE_CONCURRENCY", "N"): usize, usize, Whole = 50;
            /// How long jobs of a lower priority may wait behind other jobs before some of them go first. Default: forever, so that
            /// priorities are strict
            aging("QUEUE_AGING", "DURATION"): Option<Duration>, Duration, Span = None;
            /// Interval at which the worker polls for jobs without a notification. Default: 1 s. This is the maximum delay after a lost
            /// notification
            poll_interval("QUEUE_POLL_INTERVAL", "DURATION"): Duration, Duration, Span = Duration::from_secs(1);
            /// Time without a heartbeat after which other workers recover the worker's jobs. Default: 30 s; at least 1 s. A handler may
            /// take longer, because the heartbeat has its own thread
            lease_ttl("QUEUE_LEASE_TTL", "DURATION"): Duration, Duration, Span = Duration::from_secs(30);
            /// How long running handlers may continue after a shutdown request. Default: 20 s, because most supervisors kill a process
            /// after 30 s
            grace("QUEUE_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(20);
            /// How long completed, cancelled and expired jobs are kept, unless their type sets its own retention. Default: 7 days; at most
            /// 100 days, because each day of history slows statements down
            retention("QUEUE_RETENTION", "DURATION"): Duration, Duration, Span = Duration::from_hours(7 * 24);
            /// How long dead letters are kept. Default: until an operator deletes or requeues them
            dead_retention("QUEUE_DEAD_RETENTION", "DURATION"): Option<Duration>, Duration, Span = None;
            /// How long a running handler may continue after its job was cancelled, before the handler is dropped. Default: 10 s
            cancel_grace("QUEUE_CANCEL_GRACE", "DURATION"): Duration, Duration, Span = Duration::from_secs(10);
            /// Whether to wait or exit if the database accepts no writes when the worker starts, for example because it is a standby.
            /// Default: wait
            on_standby("QUEUE_ON_STANDBY", "wait|exit"): OnStandby, OnStandby, OnStandby = OnStandby::Wait;
            /// Maximum number of jobs per claim. Default: 500. Larger claims take proportionally longer
            batch("QUEUE_BATCH", "N"): usize, usize, Whole = 500;
            /// Maximum memory in MiB for payloads of waiting and running jobs. Beyond the maximum, large jobs wait for other jobs to
            /// finish, or are left to other workers. Default: 512; at least 192
            payload_memory("QUEUE_PAYLOAD_MEMORY", "MIB"): usize, usize, Whole = 512;
            /// Maximum number of the worker's own connections, in addition to the pool. Default: 12; at least 4, because an idle worker
            /// uses one each for the heartbeat, for notifications, for claims, and for everything else
            connections("QUEUE_CONNECTIONS", "N"): usize, usize, Whole = 12;
        }
    };
}

pub(crate) use each_setting;
