//! What may be found, how bad it is, what follows from it and what to do.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// It could be better. Nothing is wrong.
    Note,
    /// It costs speed, safety or a guarantee, or will.
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
    /// Its name in JSON.
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
    ($($severity:ident $name:ident: $doc:literal, $means:literal, $advice:literal;)*) => {
        /// What was found. In JSON and SQL `no_worker` and so on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum FindingKind {
            $(#[doc = $doc] $name,)*
        }

        impl FindingKind {
            /// All of them, the worst first.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// What follows from it.
            pub fn means(self) -> &'static str {
                match self {
                    $(Self::$name => $means,)*
                }
            }

            /// What to do about it.
            pub fn advice(self) -> &'static str {
                match self {
                    $(Self::$name => $advice,)*
                }
            }
        }
    };
}

// Of each how bad it is, its name, what it is, what follows from it, and what to do.
kinds! {
    Broken Unreachable: "The database cannot be reached.",
        "Nothing is enqueued, claimed or settled.",
        "see that the server runs and that the address, the login and the network are right";
    Broken ServerVersion: "The server is older than version 15.",
        "Functions and statements of the store do not work on it.",
        "upgrade the server to version 15 or later";
    Broken Standby: "The server is a standby.",
        "It only reads: nothing can be enqueued or claimed there.",
        "name the primary, or all hosts, in the database URL";
    Broken ReadOnly: "Transactions of the login only read.",
        "Nothing can be enqueued or claimed by it.",
        "set default_transaction_read_only = off for the login";
    Broken NoStore: "The schema holds no store.",
        "There is nothing to enqueue into.",
        "queue-worker migrate";
    Broken MigrationsMissing: "The store is older than this program.",
        "This program refuses to work on it.",
        "queue-worker migrate";
    Broken StoreNewer: "The store is newer than this program, and not compatible with it.",
        "This program refuses to work on it.",
        "deploy the release that has migrated it";
    Broken ForeignStore: "The schema is somebody else's, or its migrations were changed.",
        "This program refuses to work on it.",
        "name another schema with `--schema`, or restore the migrations as they were released";
    Broken Encoding: "The database's encoding is not UTF-8.",
        "A store cannot be made in it, and this program refuses to work on one.",
        "make another database: create database NAME encoding 'UTF8' locale 'C' template template0";
    Broken RowSecurity: "Row level security is on for a table of the store.",
        "Its rows are hidden: workers do not start, and statements of running ones fail.",
        "alter table .. disable row level security";
    Broken TableLocked: "A session has a table of the store to itself, or waits for that.",
        "Whoever reads or writes that table waits: claims, enqueues, verdicts.",
        "end that session, or wait for it";
    Broken FsyncOff: "`fsync` is off.",
        "A crash of the machine loses or corrupts everything in the database.",
        "set fsync = on";
    Broken FullPageWritesOff: "`full_page_writes` is off.",
        "A crash of the machine may leave torn pages, which nobody can read.",
        "set full_page_writes = on";
    Broken NoWorker: "No worker lives.",
        "Jobs wait; nothing is promoted, recovered or cleaned up.",
        "start one: `queue-worker run`, or the binary that has your handlers";
    Broken DayPlanted: "A table has the name of a partition and is none.",
        "That day cannot be made, and its jobs go to the default partition.",
        "rename that table";
    Broken PublicGrants: "Everybody who may connect has rights in the store.",
        "Payloads can be read or jobs enqueued by whoever may connect.",
        "revoke them";
    Broken InvalidIndex: "An index is not valid.",
        "Statements do not use it, and read whole tables instead; if it is unique, it keeps nothing unique.",
        "reindex it";
    Broken KeyWithoutHead: "The job that goes first in an ordering key is gone.",
        "All others of the key wait for it. No statement of ours leaves that: rows were deleted by hand.",
        "start a worker, which frees it within a minute or two; or delete that row of `active_key`, and leave a hint";
    Warning RelaxedCommits: "`synchronous_commit` is off for the login.",
        "A crash of the server may lose jobs whose enqueue was acknowledged, and verdicts.",
        "set synchronous_commit = on for the login; a bulk that may be lost asks for it by itself";
    Warning AutovacuumOff: "`autovacuum` is off.",
        "Dead rows stay, and claims, counts and lists read them.",
        "set autovacuum = on";
    Warning TrackCountsOff: "`track_counts` is off.",
        "The server does not know which tables have dead rows, and vacuums none.",
        "set track_counts = on";
    Warning TableAutovacuumOff: "Autovacuum is off for a table of the store.",
        "Its dead rows stay, and are read.",
        "reset autovacuum_enabled of that table";
    Warning Isolation: "Transactions of the login are stricter than read committed.",
        "Enqueues may fail with serialization errors, and wake sleeping workers each time.",
        "set default_transaction_isolation for the login, and the other where it is needed";
    Warning ShortTimeout: "A timeout of the login's statements or locks is short.",
        "Enqueues and statements of handlers end with 57014 or 55P03 when the server is busy; workers set their own.",
        "set a longer one for the login";
    Warning EndsSessions: "The login's idle sessions or long transactions are ended.",
        "Listening sessions are cut again and again, and handlers' transactions end under them.",
        "set transaction_timeout and idle_session_timeout to 0 for the login";
    Warning FewConnections: "Few more sessions fit.",
        "Workers and producers are soon refused with 53300.",
        "raise max_connections or the limit of the role or database, or make pools smaller";
    Warning Pooler: "A pooler is in front of the database.",
        "Settings of our own do not reach the server: plans may be slow, and jobs are found by polling.",
        "give workers a direct connection: QUEUE_DIRECT_URL";
    Warning NotEncrypted: "The connection comes from another machine and is not encrypted.",
        "Payloads and passwords can be read on the way.",
        "add `sslmode=verify-full` to the database URL; a program needs the feature `tls`";
    Warning SuperuserWorker: "Workers log in as a superuser.",
        "Whoever takes over a handler has the server, and may run programs on its machine.",
        "make a login of its own: `queue-worker roles`, then `grant queue_worker to ..`";
    Warning RolesOutdated: "A role of the store lacks rights of this release.",
        "Those who have it are refused with 42501.",
        "queue-worker roles";
    Warning OpenSchema: "Everybody may create objects in a schema that names are looked for in.",
        "Whoever may connect can plant functions that others then call, as your own statements.",
        "revoke that";
    Warning Planted: "Functions or operators outside `pg_catalog` have names of it.",
        "No statement of the store finds them; your own may.",
        "drop them unless you know them";
    Warning ForeignObject: "A function, table or trigger in the store's schema is not the store's.",
        "A trigger runs with each write of the store's; a function may be called instead of ours.",
        "drop it, or move it to another schema";
    Warning LongTransaction: "A transaction has been open for long.",
        "Vacuum cleans nothing up behind it: claims, counts and lists read more and more dead rows.",
        "commit there, or end the session";
    Warning PreparedTransaction: "A prepared transaction has waited for long.",
        "The same, and it keeps its locks: nobody ends it by itself.",
        "commit or roll it back";
    Warning ReplicationSlot: "A replication slot keeps old rows.",
        "Vacuum cleans nothing up that it may want.",
        "let its consumer catch up, or drop the slot";
    Warning StandbyFeedback: "A standby keeps old rows, by `hot_standby_feedback`.",
        "Vacuum cleans nothing up that a query there may read.",
        "end the long query there, or switch hot_standby_feedback off there";
    Warning Bloat: "A table has many dead rows.",
        "Statements that look at it read them; vacuum is not done, or is kept from it.",
        "vacuum it, after whoever keeps it from that has ended";
    Warning Wraparound: "The oldest transaction that the database has rows of is old.",
        "Vacuum falls behind; at two billion the server takes no writes any more.",
        "vacuum (freeze), after whoever keeps it from that has ended";
    Warning SequenceEnd: "A sequence is nearly used up.",
        "At its end, enqueues fail.",
        "find out who calls it so often; set it back if what it numbered is gone";
    Warning DaysMissing: "Days ahead have no partition.",
        "No worker has made them; their jobs go to the default partitions, which nobody drops at once.",
        "start a worker, or call queue.add_days";
    Warning DefaultRows: "Rows of these days are in the default partitions.",
        "These days were not made in time, and stay there until they are over and pruned row by row.",
        "nothing, if days ahead are there: they go with their retention";
    Warning ManyDays: "There are many days of history.",
        "Each costs every statement a little, and locks; dropping old ones does not keep up, or much outlives them.",
        "a shorter retention, or discard old dead letters: `queue-worker discard --all --older-than 30d`; else raise max_locks_per_transaction";
    Warning Unserved: "Jobs are ready that no living worker serves.",
        "They wait until somebody serves them.",
        "start a worker that has that queue and type";
    Warning SilentWorker: "A worker is silent and still holds jobs.",
        "Nobody has taken them back: no other worker lives, or recovery fails.",
        "start a worker; if there is one, see its log";
    Warning LateHeartbeat: "A worker's heartbeat is late.",
        "Its machine or the way to the database is slow; if it ends, others take its jobs and it starts over.",
        "look at that machine's load and at the network";
    Warning NoListener: "Workers live, and none listens for new jobs.",
        "Jobs are found by polling, up to seconds later.",
        "see the workers' logs; give them a direct connection; grant them queue_worker";
    Warning ClockApart: "The clocks of this machine and of the server are apart.",
        "No job hangs on it, but times that are said from here are: `--at`, run_at, expires_at.",
        "set both by NTP";
    Warning Suspect: "A job has ended processes that ran it.",
        "It is tried apart from others, alone after two crashes, and is dead after the third.",
        "see why: `queue-worker show ID`";
    Warning KeyHeld: "A dead job holds up others of its ordering key.",
        "All behind it wait until somebody requeues or discards it.",
        "queue-worker requeue ID, or discard ID";
    Warning CapacityFull: "A queue is at its capacity.",
        "Enqueues into it are refused.",
        "more workers, or another capacity: `queue-worker capacity QUEUE N`";
    Warning LimitFull: "A limit has had no room, and jobs wait.",
        "They wait for what runs under it.",
        "see `queue-worker limits`; raise it if it is too low";
    Warning ManyNotes: "More acts are noted than are kept.",
        "Notes are cleaned up as acts are noted; somebody has written to the table, or keeps its rows locked.",
        "delete the oldest";
    Warning TalliesWaiting: "Counts of attempts wait to be added up.",
        "`history` gets slower; no worker adds up, or each fails.",
        "start a worker, or see its log";
    Warning NotLookedAt: "Something could not be looked at in time.",
        "It is locked, or the server is slow or broken there.",
        "see who holds it: the other findings, or pg_locks";
    Note NotPermitted: "The login may not look at something.",
        "There may be more findings.",
        "grant it the store's reader role";
    Note OpenTransactions: "Sessions may stay idle in a transaction for ever.",
        "One that is forgotten keeps vacuum from cleaning up, and its locks.",
        "set idle_in_transaction_session_timeout";
}
