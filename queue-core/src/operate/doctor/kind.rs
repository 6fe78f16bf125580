//! Kinds of findings, with their severity, consequence and advice.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Severity of a finding.
///
/// ```
/// use queue_core::{Store, operate::{Diagnosis, Severity}};
///
/// assert!(Severity::Note < Severity::Warning && Severity::Warning < Severity::Broken);
/// let diagnosis = Diagnosis::unreachable(Store::default(), "connection refused");
/// assert_eq!(diagnosis.worst(), Some(Severity::Broken));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// An improvement is possible, but nothing is wrong.
    Note,
    /// Performance, safety or a guarantee is degraded or is about to be degraded.
    Warning,
    /// Jobs do not run, or a guarantee is void.
    Broken,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Broken => "broken",
        })
    }
}

impl fmt::Display for FindingKind {
    /// Writes the kind in snake case, as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_value(self) {
            Ok(Value::String(name)) => f.write_str(&name),
            _ => Err(fmt::Error),
        }
    }
}

impl FromStr for FindingKind {
    type Err = serde_json::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        serde_json::from_value(Value::from(name))
    }
}

macro_rules! kinds {
    ($($severity:ident $name:ident: $doc:literal, $consequence:literal, $advice:literal;)*) => {
        /// Kind of a finding. Written in snake case in JSON and SQL, such as `no_worker`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum FindingKind {
            $(#[doc = $doc] $name,)*
        }

        impl FindingKind {
            /// All kinds, most severe first.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the severity for findings of this kind.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// Returns the consequence for findings of this kind.
            pub fn consequence(self) -> &'static str {
                match self {
                    $(Self::$name => $consequence,)*
                }
            }

            /// Returns the advice for findings of this kind.
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)*
                }
            }
        }
    };
}

// Columns: severity, name, description, consequence, advice.
kinds! {
    Broken Unreachable: "The database cannot be reached.",
        "No job can be enqueued, claimed or settled.",
        "check the server, its address, the login and the network";
    Broken ServerVersion: "The server is older than version 15.",
        "The store's functions and statements do not work on it.",
        "upgrade the server to version 15 or later";
    Broken Standby: "The server is a standby.",
        "It accepts no writes: jobs can be neither enqueued nor claimed.",
        "use the primary, or all hosts, in the database URL";
    Broken ReadOnly: "Transactions of the login are read-only.",
        "It can neither enqueue nor claim jobs.",
        "set default_transaction_read_only = off for the login";
    Broken NoStore: "The schema contains no store.",
        "No job can be enqueued.",
        "queue-worker migrate";
    Broken MigrationsMissing: "The store is older than this program.",
        "This program refuses to use it.",
        "queue-worker migrate";
    Broken StoreNewer: "The store is newer than this program, and not compatible with it.",
        "This program refuses to use it.",
        "deploy the release that migrated it";
    Broken ForeignStore: "The schema belongs to another application, or its migrations were changed.",
        "This program refuses to use it.",
        "choose another schema with `--schema`, or restore the released migrations";
    Broken Encoding: "The database's encoding is not UTF-8.",
        "No store can be created in it, and this program refuses to use one.",
        "create another database: create database NAME encoding 'UTF8' locale 'C' template template0";
    Broken RowSecurity: "Row-level security is enabled for a table of the store.",
        "Its rows are hidden: workers do not start, and statements of running workers fail.",
        "alter table .. disable row level security";
    Broken TableLocked: "A session holds an exclusive lock on a table of the store, or waits for one.",
        "Statements that use that table wait: claims, enqueues, verdicts.",
        "terminate that session, or wait for it";
    Broken FsyncOff: "`fsync` is off.",
        "A crash of the machine loses or corrupts everything in the database.",
        "set fsync = on";
    Broken FullPageWritesOff: "`full_page_writes` is off.",
        "A crash of the machine may leave torn pages, which are unreadable.",
        "set full_page_writes = on";
    Broken NoWorker: "No worker is alive.",
        "Jobs wait; none is promoted or recovered, and no history is pruned.",
        "start one: `queue-worker run`, or the binary with your handlers";
    Broken DayPlanted: "A table has the name of a partition but is not one.",
        "The partition cannot be created, and jobs of its day go to the default partition.",
        "rename that table";
    Broken PublicGrants: "PUBLIC has rights in the store.",
        "Every role that may connect can read payloads or enqueue jobs.",
        "revoke them";
    Broken InvalidIndex: "An index is not valid.",
        "Statements do not use it and scan whole tables instead. A unique index enforces nothing.",
        "reindex it";
    Broken KeyWithoutHead: "The first job of an ordering key is gone.",
        "All other jobs of the key wait for it. The store does not cause this: rows were deleted manually.",
        "start a worker, which releases the key within a minute or two; or delete the row of `active_key` and insert a hint";
    Warning RelaxedCommits: "`synchronous_commit` is off for the login.",
        "A crash of the server may lose verdicts and acknowledged enqueues.",
        "set synchronous_commit = on for the login; enqueues that may be lost can request `relaxed` individually";
    Warning AutovacuumOff: "`autovacuum` is off.",
        "Dead rows accumulate, and claims, counts and lists read them.",
        "set autovacuum = on";
    Warning TrackCountsOff: "`track_counts` is off.",
        "The server does not know which tables have dead rows, and autovacuum does nothing.",
        "set track_counts = on";
    Warning TableAutovacuumOff: "Autovacuum is off for a table of the store.",
        "Its dead rows accumulate and are read by statements.",
        "reset autovacuum_enabled for that table";
    Warning Isolation: "Transactions of the login are isolated more strictly than read committed.",
        "Enqueues may fail with serialization errors, and each failure wakes sleeping workers.",
        "set default_transaction_isolation = 'read committed' for the login, and a stricter level per transaction";
    Warning ShortTimeout: "The login's `statement_timeout` or `lock_timeout` is short.",
        "Enqueues and statements of handlers fail with 57014 or 55P03 when the server is busy. Workers set their own timeouts.",
        "set a longer timeout for the login";
    Warning EndsSessions: "The server terminates idle sessions or long transactions of the login.",
        "Listening sessions are disconnected repeatedly, and handlers lose their transactions.",
        "set transaction_timeout and idle_session_timeout to 0 for the login";
    Warning FewConnections: "Few connections are left.",
        "Connections of workers and producers will soon be rejected with 53300.",
        "raise max_connections or the limit of the role or database, or reduce pool sizes";
    Warning Pooler: "A connection pooler drops or rejects startup settings.",
        "The worker's settings do not reach the server: plans may be slow, and jobs are found by polling.",
        "give workers a direct connection: QUEUE_DIRECT_URL";
    Warning NotEncrypted: "The connection comes from another machine and is not encrypted.",
        "Payloads and passwords can be read on the network.",
        "add `sslmode=verify-full` to the database URL; a program needs the feature `tls`";
    Warning SuperuserWorker: "Workers log in as a superuser.",
        "An attacker who compromises a handler controls the server and can run programs on its machine.",
        "create a separate login: `queue-worker roles`, then `grant queue_worker to ..`";
    Warning RolesOutdated: "A role of the store lacks rights of this release.",
        "Logins with this role are rejected with 42501.",
        "queue-worker roles";
    Warning OpenSchema: "PUBLIC may create objects in a schema of the search path.",
        "Every role that may connect can create functions that statements of others then call.",
        "revoke that right";
    Warning Planted: "Functions or operators outside `pg_catalog` shadow its names.",
        "Statements of the store never resolve to them; your own may.",
        "drop them unless you know them";
    Warning ForeignObject: "A function, table or trigger in the store's schema does not belong to the store.",
        "A trigger runs with each write of the store; a function may be called instead of the store's.",
        "drop it, or move it to another schema";
    Warning LongTransaction: "A transaction has been open for a long time.",
        "Vacuum cannot remove newer dead rows: claims, counts and lists read more and more of them.",
        "commit there, or end the session";
    Warning PreparedTransaction: "A prepared transaction has been pending for a long time.",
        "Vacuum cannot remove newer dead rows, and its locks stay. It never ends automatically.",
        "commit it or roll it back";
    Warning ReplicationSlot: "A replication slot keeps old rows.",
        "Vacuum cannot remove rows that its consumer may need.",
        "let its consumer catch up, or drop the slot";
    Warning StandbyFeedback: "A standby keeps old rows with `hot_standby_feedback`.",
        "Vacuum cannot remove rows that a query on the standby may read.",
        "end the long query on the standby, or set hot_standby_feedback = off there";
    Warning Bloat: "A table has many dead rows.",
        "Statements on the table read them. Vacuum does not run, or something prevents it from removing them.",
        "vacuum it, after ending the transaction that prevents the cleanup";
    Warning Wraparound: "The oldest unfrozen transaction id of the database is old.",
        "Vacuum falls behind. At two billion the server stops accepting writes.",
        "vacuum (freeze), after ending the transaction that prevents the cleanup";
    Warning SequenceEnd: "A sequence is nearly used up.",
        "When it is exhausted, enqueues fail.",
        "find what calls it that often; reset it if the rows with low numbers are gone";
    Warning DaysMissing: "Partitions of coming days are missing.",
        "No worker has created them. Jobs of these days go to the default partitions, which are not dropped as a whole.",
        "start a worker, or call queue.add_days";
    Warning DefaultRows: "Rows of current days are in the default partitions.",
        "The partitions of these days were not created in time. The rows stay there until retention prunes them row by row.",
        "nothing, if partitions of coming days exist: retention prunes the rows";
    Warning ManyDays: "The history has many days.",
        "Each day slows every statement a little and uses locks. Pruning does not keep up, or old jobs prevent it.",
        "shorten the retention, or discard old dead letters: `queue-worker discard --all --older-than 30d`; else raise max_locks_per_transaction";
    Warning Unserved: "No live worker serves some ready jobs.",
        "They wait until a worker serves them.",
        "start a worker with that queue and type";
    Warning SilentWorker: "A worker is silent and still holds jobs.",
        "They were not recovered: no other worker is alive, or recovery fails.",
        "start a worker; if one is running, see its log";
    Warning LateHeartbeat: "A worker's heartbeat is late.",
        "Its machine or its network is slow. If the heartbeat expires, others recover its jobs, and the worker restarts.",
        "check the machine's load and the network";
    Warning NoListener: "Workers are alive, but none listens for new jobs.",
        "Jobs are found by polling, up to seconds late.",
        "see the workers' logs; use a direct connection; grant queue_worker to their login";
    Warning ClockApart: "The clocks of this machine and of the server differ.",
        "Jobs run on the server's clock, but times set by this machine are off: `--at`, run_at, expires_at.",
        "synchronize both with NTP";
    Warning Suspect: "A job has crashed the processes that ran it.",
        "It is retried apart from others, alone after two crashes. After the third it is dead.",
        "see why: `queue-worker show ID`";
    Warning KeyHeld: "A dead letter blocks its ordering key.",
        "All jobs behind it wait until it is requeued or discarded.",
        "queue-worker requeue ID, or queue-worker discard ID";
    Warning CapacityFull: "A queue is at its capacity.",
        "Enqueues into it are rejected.",
        "start more workers, or raise the capacity: `queue-worker capacity QUEUE N`";
    Warning LimitFull: "A limit is exhausted, and jobs have waited for a long time.",
        "They wait until running jobs release permits.",
        "see `queue-worker limits`; raise the limit if it is too low";
    Warning ManyNotes: "The audit log has more entries than are kept.",
        "Entries are pruned as others are written. Another client wrote to the table, or holds locks on its rows.",
        "delete the oldest entries";
    Warning TalliesWaiting: "Counts of attempts are not aggregated.",
        "`history` gets slower. No worker aggregates them, or every aggregation fails.",
        "start a worker; if one is running, see its log for the error";
    Warning NotLookedAt: "A check failed or timed out.",
        "Its objects are locked, or the server is slow or damaged.",
        "find the lock holder in the other findings or in pg_locks";
    Note NotPermitted: "The login lacks rights for some checks.",
        "There may be more findings.",
        "grant the store's reader role to the login";
    Note OpenTransactions: "Sessions may stay idle in a transaction without limit.",
        "A forgotten one prevents vacuum from cleaning up, and keeps its locks.",
        "set idle_in_transaction_session_timeout";
}
