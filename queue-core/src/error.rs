//! Errors returned by enqueues, operations, migrations and handlers' transactions. Each variant represents a case that callers handle
//! differently. No variant contains a job payload.

mod message;

use std::fmt;

pub use self::message::message;
use crate::{
    define::{JobId, JobState},
    payload::PayloadError,
    program::program_name,
};

/// Error returned by an enqueue, an operation, a migration or a handler's transaction, or caused by an invalid definition.
///
/// ```no_run
/// # use queue_core::{Error, Job as _, job};
/// # #[job(send_only)] #[derive(serde::Serialize, serde::Deserialize)] struct Email { to: String }
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), Error> {
/// match (Email { to: "ada@example.org".into() }).enqueue(pool).await {
///     Ok(job) => println!("enqueued job {}", job.id()),
///     Err(Error::AtCapacity { queue, capacity }) => println!("{capacity} jobs are waiting in {queue}, try again later"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a queue, job type or schema is invalid.
    #[error("`{value}` is not a valid {what}: 1 to {most} of the characters A-Z a-z 0-9 _ . : -")]
    InvalidName {
        /// Kind of name, such as `queue name`.
        what: &'static str,
        /// Invalid name, shortened and escaped.
        value: String,
        /// Maximum length of the name in characters.
        most: usize,
    },
    /// An option has a value outside of its accepted range.
    #[error("{what} is {}; it must be {range}", if value.is_empty() { "empty" } else { value.as_str() })]
    OutOfRange {
        /// Option as named in the error message, such as `the time to run at`.
        what: &'static str,
        /// Rejected value.
        value: String,
        /// Description of the accepted values.
        range: &'static str,
    },
    /// A payload cannot be stored: it cannot be encoded, it is too large, or the database could not return it unchanged.
    #[error("the payload of `{job_type}` cannot be stored: {source}")]
    Payload {
        /// Job type of the rejected payload.
        job_type: &'static str,
        /// Cause of the error, with its position in the payload.
        source: PayloadError,
    },
    /// The payload must be stored encrypted, but cannot be encrypted. Nothing is enqueued.
    #[error("the payload of `{job_type}` cannot be sealed: {why}")]
    Sealing {
        /// Job type of the payload that cannot be encrypted.
        job_type: &'static str,
        /// Description of what is missing, and how to provide it.
        why: String,
    },
    /// The keys for sealing payloads are invalid.
    #[error("{why}")]
    Keyring {
        /// Cause and remedy. The text contains no key.
        why: String,
    },
    /// One of several jobs cannot be enqueued, so none of the jobs is enqueued.
    #[error("job {index} (counted from 0) cannot be enqueued: {source}")]
    OneOfMany {
        /// Index of the invalid job, counted from 0.
        index: usize,
        /// Error caused by the invalid job.
        source: Box<Error>,
    },
    /// A node of a flow cannot be enqueued, so no job of the flow is enqueued.
    #[error("the node `{node}`: {source}")]
    Node {
        /// Name of the invalid node.
        node: String,
        /// Error caused by the invalid node.
        source: Box<Error>,
    },
    /// The queue is at its capacity. After this error the transaction can only be rolled back. See
    /// [`Enqueue::unless_at_capacity`](crate::Enqueue::unless_at_capacity) and
    /// [`Enqueue::wait_for_capacity`](crate::Enqueue::wait_for_capacity) for alternatives.
    #[error(
        "the queue `{queue}` is at its capacity of {capacity} jobs; wait for its workers, or raise it with `{} capacity`",
        program_name()
    )]
    AtCapacity {
        /// Name of the queue that is at its capacity.
        queue: String,
        /// Maximum number of waiting jobs in the queue.
        capacity: u64,
    },
    /// An enqueue inside a transaction cannot wait for capacity. The wait could block other transactions that finish jobs and thus free
    /// capacity.
    #[error(
        "an enqueue cannot wait for capacity inside a transaction, which could block the transactions that finish waiting jobs; enqueue on the pool, or use `unless_at_capacity`"
    )]
    WaitInTransaction,
    /// The database's encoding is not UTF-8. Payloads and errors require UTF-8.
    #[error(
        "the encoding of this database is {encoding}, and a store requires UTF8; create another database: `create database NAME encoding 'UTF8' locale 'C' \
         template template0`"
    )]
    Encoding {
        /// Actual encoding of the database.
        encoding: String,
    },
    /// The login lacks privileges in the store's schema: `USAGE` on the schema or, for a worker's login, the privileges of a worker.
    #[error("the login `{login}` lacks rights in the schema `{schema}`; grant them: `{fix}`{}", roles_hint(schema, .not_inherited))]
    NoRights {
        /// Schema where the login lacks privileges.
        schema: String,
        /// Login that lacks privileges.
        login: String,
        /// Roles with privileges in the schema. The login is a member of the roles but does not inherit their privileges.
        not_inherited: Vec<String>,
        /// SQL statement that grants the missing privileges.
        fix: String,
    },
    /// Row level security hides rows of the store's tables from the login.
    #[error(
        "row level security hides rows of the schema `{schema}` from this login; disable it, `{}`, or give the login `bypassrls`",
        disable_row_security(schema, .tables)
    )]
    RowSecurity {
        /// Schema whose rows are hidden.
        schema: String,
        /// Tables whose rows are hidden by row level security.
        tables: Vec<String>,
    },
    /// The schema contains no tables of this project.
    #[error(
        "the schema `{schema}` holds no job queue; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        schema_option(schema)
    )]
    NotMigrated {
        /// Schema that was expected to contain a store.
        schema: String,
    },
    /// The schema was migrated by an older release.
    #[error(
        "the schema `{schema}` is at version {found}, older than this release's {known}; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        schema_option(schema)
    )]
    OlderSchema {
        /// Schema that needs a migration.
        schema: String,
        /// Current version of the schema.
        found: i32,
        /// Newest schema version known to this release.
        known: i32,
    },
    /// The schema was migrated by a newer release that is incompatible with this release.
    #[error(
        "the schema `{schema}` is at version {found}, which works with releases that know {compatible}; this one is older and knows {known}; deploy the newer release here too"
    )]
    NewerSchema {
        /// Schema that is newer than this release.
        schema: String,
        /// Current version of the schema.
        found: i32,
        /// Lowest schema version that a release must know to be compatible with the schema.
        compatible: i32,
        /// Newest schema version known to this release.
        known: i32,
    },
    /// An applied migration differs from the migration of the same version in this release.
    #[error(
        "migration {version} of the schema `{schema}` was applied with different contents than this release's; restore the file that was applied"
    )]
    ChangedMigration {
        /// Schema with the changed migration.
        schema: String,
        /// Version of the changed migration.
        version: i32,
    },
    /// The schema contains objects that do not belong to a store of this project.
    #[error("the schema `{schema}` holds no store of this project: {why}; name another schema, or drop this one if it is not needed")]
    ForeignSchema {
        /// Schema with foreign objects.
        schema: String,
        /// Description of the foreign objects.
        why: String,
    },
    /// A migration did not acquire a lock within a minute, because another transaction held the lock.
    #[error(
        "the schema `{schema}` cannot be migrated while {holders} hold locks on its tables; end their transactions, then migrate again"
    )]
    SchemaInUse {
        /// Schema that could not be migrated.
        schema: String,
        /// Sessions that hold locks on tables of the schema.
        holders: String,
    },
    /// The store is unknown, or it accepts no new tenants. The name `*` means that no store accepts new tenants.
    #[error("there is no store `{name}`, or none that accepts new tenants; see `Stores::add`")]
    NoStore {
        /// Name of the missing store.
        name: String,
    },
    /// The tenant has no store, and the placement rule does not assign a store.
    #[error("the tenant `{key}` is in no store; place it with `Stores::place`")]
    NotPlaced {
        /// Key of the tenant without a store.
        key: String,
    },
    /// The tenant has moved from the store of the transaction to another store. The call has not changed the transaction.
    #[error("the tenant `{key}` has moved to another store; call `Stores::of` again, and enqueue there")]
    Moved {
        /// Key of the tenant that has moved.
        key: String,
    },
    /// The tenant cannot be moved: it is already moving or already in the target store, or the target store is closed.
    #[error(
        "the tenant `{key}` cannot move into the store `{store}`: it is already there or being moved (see `Stores::moves`), or the store is closed"
    )]
    CannotMove {
        /// Key of the tenant to move.
        key: String,
        /// Name of the target store.
        store: String,
    },
    /// The attempt has lost its lease, for example because another worker has recovered the lease or the job has finished. If the error
    /// occurs in a transaction of the attempt, the transaction's writes are rolled back.
    #[error("the lease on job {job} is lost, or the job has finished: this attempt can no longer change it")]
    LeaseLost {
        /// Id of the job whose lease was lost.
        job: JobId,
    },
    /// The job's type is transactional, so the attempt already runs in a transaction, whose commit completes the job.
    #[error(
        "job {job} is of a transactional type: use `cx.transaction()`, which is committed with the job's completion, instead of `cx.begin()`"
    )]
    Transactional {
        /// Id of the transactional job.
        job: JobId,
    },
    /// A checkpoint cannot be stored: it cannot be encoded, it is too large, or the database could not return it unchanged.
    #[error("a checkpoint of job {job} cannot be stored: {source}")]
    Checkpoint {
        /// Id of the job whose checkpoint was rejected.
        job: JobId,
        /// Cause of the error, with its position in the checkpoint.
        source: PayloadError,
    },
    /// The payload of a signal cannot be stored: it cannot be encoded, it is too large, or the database could not return it unchanged.
    #[error("the payload of a signal to job {job} cannot be stored: {source}")]
    Signal {
        /// Id of the job that the signal was sent to.
        job: JobId,
        /// Cause of the error, with its position in the payload.
        source: PayloadError,
    },
    /// The stored checkpoint does not deserialize as the requested type.
    #[error("the checkpoint of job {job} does not fit the type `{rust_type}` (column {column}); ignore it, or read it as the older type")]
    CheckpointType {
        /// Id of the job whose checkpoint was requested.
        job: JobId,
        /// Name of the requested Rust type.
        rust_type: &'static str,
        /// Column in the JSON text where deserialization failed.
        column: usize,
    },
    /// A step of a durable job failed or is invalid.
    #[error("the step `{step}` of job {job}: {why}")]
    Step {
        /// Id of the durable job.
        job: JobId,
        /// Name of the step that failed or is invalid.
        step: String,
        /// Cause of the failure, and the remedy.
        why: String,
    },
    /// A handler in a test cannot begin a transaction: the test provides no pool, or the test's own transaction is already in use.
    #[cfg(feature = "testing")]
    #[error("job {job} runs in a test without a transaction to begin: use `testing::drain(&mut tx).pool(&pool)`")]
    NoTransaction {
        /// Id of the job that runs in the test.
        job: JobId,
    },
    /// No job with this id exists.
    #[error("there is no job {job}; it was never enqueued, was rolled back, or its history was pruned")]
    NotFound {
        /// Id that belongs to no job.
        job: JobId,
    },
    /// The state of the job does not allow the operation.
    #[error("job {job} is {state}; only a job that is {} can be {done}", join_states(wanted))]
    WrongState {
        /// Id of the job whose state does not allow the operation.
        job: JobId,
        /// Current state of the job.
        state: JobState,
        /// States in which the operation is allowed.
        wanted: Vec<JobState>,
        /// Requested operation as a participle, such as `requeued`.
        done: String,
    },
    /// The state of the job allows the operation, but another transaction has locked the job. The other transaction changes the job, or
    /// belongs to the job's handler.
    #[error(
        "job {job} is {state}, but another transaction has it locked, possibly the one in which it runs; try again after that has ended"
    )]
    Locked {
        /// Id of the locked job.
        job: JobId,
        /// Current state of the job.
        state: JobState,
    },
    /// Another job holds the uniqueness key of the job to be requeued.
    #[error(
        "job {job} cannot be requeued: job {holder} holds its uniqueness key; cancel that job first, or requeue this one anyway with `--force`"
    )]
    KeyTaken {
        /// Id of the job to be requeued.
        job: JobId,
        /// Id of the job that holds the key.
        holder: JobId,
    },
    /// A report or journal entry of an attempt was not written, because the worker had ended or the database operation failed.
    #[error("the report of an attempt of job {job} could not be written: {why}")]
    NotWritten {
        /// Id of the job that the attempt runs.
        job: JobId,
        /// Cause of the failed write.
        why: String,
    },
    /// A schedule is invalid or does not support the requested operation.
    #[error("{why}")]
    Schedule {
        /// Cause of the error, and the remedy.
        why: String,
    },
    /// No schedule with this name exists.
    #[error("there is no schedule `{name}`; `{} cron list` shows the existing ones", program_name())]
    NoSchedule {
        /// Name that belongs to no schedule.
        name: String,
    },
    /// A database operation failed. The error text contains the database's message, but never its `DETAIL`, which could contain a row.
    #[error("{}", message(.0))]
    Database(#[source] sqlx::Error),
}

/// Writes the `Display` text within `Error(..)`. A derived implementation would write the `Debug` output of the driver, which contains
/// the server's `DETAIL`. The `DETAIL` may be a whole row including the payload.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// Returns a hint to create a role for the login. The hint is empty if the login is already a member of a role with the privileges.
fn roles_hint(schema: &str, not_inherited: &[String]) -> String {
    if not_inherited.is_empty() {
        let name = program_name();
        format!(", after `{name} roles` has created the role; `{schema}_reader` suffices to look, and `{schema}_producer` to enqueue")
    } else {
        String::new()
    }
}

/// Returns SQL statements that disable row level security for `tables`.
pub(crate) fn disable_row_security(schema: &str, tables: &[String]) -> String {
    let each = tables.iter().map(|table| format!("alter table \"{schema}\".{table} disable row level security"));
    each.collect::<Vec<_>>().join("; ")
}

/// Returns the command-line option that selects `schema`, or an empty string for the default schema.
fn schema_option(schema: &str) -> String {
    if schema == "queue" { String::new() } else { format!(" --schema {schema}") }
}

/// Formats a list of states, such as `dead, completed or cancelled`.
fn join_states(states: &[JobState]) -> String {
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
        None => "none".to_owned(),
    }
}
