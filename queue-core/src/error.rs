//! Errors of enqueuing, of a handler's own transaction, and of operating. Each variant is one that callers handle differently, and none contains
//! a payload.

mod message;

use std::fmt;

pub use self::message::message;
use crate::{
    define::{JobId, JobState},
    payload::PayloadError,
    program::program_name,
};

/// Error of defining, enqueuing, operating, migrating, or of a handler's transaction.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A queue, job type or schema name is invalid.
    #[error("`{value}` is not a valid {what}: 1 to {most} of the characters A-Z a-z 0-9 _ . : -")]
    InvalidName {
        /// Kind of name.
        what: &'static str,
        /// The name, shortened and escaped.
        value: String,
        /// Maximum number of characters.
        most: usize,
    },
    /// An option is outside its range.
    #[error("{what} is {}; it must be {range}", if value.is_empty() { "empty" } else { value.as_str() })]
    OutOfRange {
        /// Name of the option.
        what: &'static str,
        /// The given value.
        value: String,
        /// Accepted values.
        range: &'static str,
    },
    /// The database could not return a payload unchanged.
    #[error("the payload of `{job_type}` cannot be stored: {source}")]
    Payload {
        /// Name of the job type.
        job_type: &'static str,
        /// Cause, and its position in the payload.
        source: PayloadError,
    },
    /// The payload must be stored encrypted, and cannot be. Nothing is enqueued.
    #[error("the payload of `{job_type}` cannot be sealed: {why}")]
    Sealing {
        /// Name of the job type.
        job_type: &'static str,
        /// What is missing, and how to provide it.
        why: String,
    },
    /// The keys for sealing payloads are invalid.
    #[error("{why}")]
    Keyring {
        /// Cause and remedy; contains no key.
        why: String,
    },
    /// One of several jobs cannot be enqueued, so none of them is.
    #[error("job {index} (counted from 0) cannot be enqueued: {source}")]
    OneOfMany {
        /// Index of the job, counted from 0.
        index: usize,
        /// Cause.
        source: Box<Error>,
    },
    /// A node of a flow cannot be enqueued, so nothing of the flow is.
    #[error("the node `{node}`: {source}")]
    Node {
        /// Name of the node.
        node: String,
        /// Cause.
        source: Box<Error>,
    },
    /// The queue is at its capacity. The transaction can only be rolled back; see
    /// [`Enqueue::unless_at_capacity`](crate::Enqueue::unless_at_capacity) and [`Enqueue::wait_for_capacity`](crate::Enqueue::wait_for_capacity)
    /// for alternatives.
    #[error(
        "the queue `{queue}` is at its capacity of {capacity} jobs; wait for its workers, or raise it with `{} capacity`",
        program_name()
    )]
    AtCapacity {
        /// Name of the queue.
        queue: String,
        /// Maximum number of jobs waiting in the queue.
        capacity: u64,
    },
    /// An enqueue was to wait for capacity inside a transaction, which could block the transactions that finish waiting jobs.
    #[error(
        "an enqueue cannot wait for capacity inside a transaction, which could block the transactions that finish waiting jobs; enqueue on the pool, or use `unless_at_capacity`"
    )]
    WaitInTransaction,
    /// The database's encoding is not UTF-8, which payloads and errors require.
    #[error(
        "the encoding of this database is {encoding}, and a store requires UTF8; create another database: `create database NAME encoding 'UTF8' locale 'C' \
         template template0`"
    )]
    Encoding {
        /// Encoding of the database.
        encoding: String,
    },
    /// The login lacks rights in the store's schema: all rights, or those of a worker.
    #[error("the login `{login}` lacks rights in the schema `{schema}`; grant them: `{fix}`")]
    NoRights {
        /// The schema.
        schema: String,
        /// The login.
        login: String,
        /// Roles with rights in the schema that the login is a member of but does not inherit.
        not_inherited: Vec<String>,
        /// Statement that grants the rights.
        fix: String,
    },
    /// Row level security hides rows of the store's tables from this login.
    #[error(
        "row level security hides rows of the schema `{schema}` from this login; disable it, `{}`, or give the login `bypassrls`",
        disable_row_security(schema, .tables)
    )]
    RowSecurity {
        /// The schema.
        schema: String,
        /// The tables.
        tables: Vec<String>,
    },
    /// The schema contains no tables of this project.
    #[error(
        "the schema `{schema}` holds no job queue; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        schema_option(schema)
    )]
    NotMigrated {
        /// The schema.
        schema: String,
    },
    /// The schema was migrated by an older release.
    #[error(
        "the schema `{schema}` is at version {found}, older than this release's {known}; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        schema_option(schema)
    )]
    OlderSchema {
        /// The schema.
        schema: String,
        /// Version of the schema.
        found: i32,
        /// Newest version known to this release.
        known: i32,
    },
    /// The schema was migrated by a newer release, which is incompatible with this one.
    #[error(
        "the schema `{schema}` is at version {found}, which works with releases that know {compatible}; this one is older and knows {known}; deploy the newer release here too"
    )]
    NewerSchema {
        /// The schema.
        schema: String,
        /// Version of the schema.
        found: i32,
        /// Version that a release must know to work with the schema.
        compatible: i32,
        /// Newest version known to this release.
        known: i32,
    },
    /// An applied migration differs from this release's.
    #[error(
        "migration {version} of the schema `{schema}` was applied with different contents than this release's; restore the file that was applied"
    )]
    ChangedMigration {
        /// The schema.
        schema: String,
        /// Version of the migration.
        version: i32,
    },
    /// The schema contains something other than a store of this project.
    #[error("the schema `{schema}` holds no store of this project: {why}; name another schema, or drop this one if it is not needed")]
    ForeignSchema {
        /// The schema.
        schema: String,
        /// Cause.
        why: String,
    },
    /// A migration did not get a lock within a minute, because another transaction holds it.
    #[error(
        "the schema `{schema}` cannot be migrated while {holders} hold locks on its tables; end their transactions, then migrate again"
    )]
    SchemaInUse {
        /// The schema.
        schema: String,
        /// Sessions that hold the locks.
        holders: String,
    },
    /// No store has this name, or no store accepts new tenants.
    #[error("there is no store `{name}`, or none that accepts new tenants; see `Stores::add`")]
    NoStore {
        /// Name of the store.
        name: String,
    },
    /// The tenant is in no store, and the rule does not assign one.
    #[error("the tenant `{key}` is in no store; place it with `Stores::place`")]
    NotPlaced {
        /// Key of the tenant.
        key: String,
    },
    /// The tenant has left the store in which a transaction was to enqueue for it. The transaction is unchanged.
    #[error("the tenant `{key}` has moved to another store; call `Stores::of` again, and enqueue there")]
    Moved {
        /// Key of the tenant.
        key: String,
    },
    /// The tenant cannot be moved: it is already moving or in that store, or the store is closed.
    #[error(
        "the tenant `{key}` cannot move into the store `{store}`: it is already there or being moved (see `Stores::moves`), or the store is closed"
    )]
    CannotMove {
        /// Key of the tenant.
        key: String,
        /// Target store.
        store: String,
    },
    /// The attempt has lost its lease: another worker has the job, or it has finished. The attempt's writes in this transaction are rolled back.
    #[error("the lease on job {job} is lost, or the job has finished: this attempt can no longer change it")]
    LeaseLost {
        /// Id of the job.
        job: JobId,
    },
    /// The job's type is transactional: its attempt already runs in a transaction, whose commit completes the job.
    #[error(
        "job {job} is of a transactional type: use `cx.transaction()`, which is committed with the job's completion, instead of `cx.begin()`"
    )]
    Transactional {
        /// Id of the job.
        job: JobId,
    },
    /// The database could not return a checkpoint unchanged.
    #[error("a checkpoint of job {job} cannot be stored: {source}")]
    Checkpoint {
        /// Id of the job.
        job: JobId,
        /// Cause, and its position in the checkpoint.
        source: PayloadError,
    },
    /// The database could not return the payload of a signal unchanged.
    #[error("the payload of a signal to job {job} cannot be stored: {source}")]
    Signal {
        /// Id of the job.
        job: JobId,
        /// Cause, and its position in the payload.
        source: PayloadError,
    },
    /// The stored checkpoint has another type.
    #[error("the checkpoint of job {job} does not fit the type `{rust_type}` (column {column}); ignore it, or read it as the older type")]
    CheckpointType {
        /// Id of the job.
        job: JobId,
        /// Requested Rust type.
        rust_type: &'static str,
        /// Column of the error in the JSON text.
        column: usize,
    },
    /// A step of a durable job failed or is invalid.
    #[error("the step `{step}` of job {job}: {why}")]
    Step {
        /// Id of the job.
        job: JobId,
        /// Name of the step.
        step: String,
        /// Cause and remedy.
        why: String,
    },
    /// The attempt runs in a test that has given its handler no pool for a transaction.
    #[cfg(feature = "testing")]
    #[error("job {job} runs in a test without a transaction to begin: use `testing::drain(&mut tx).pool(&pool)`")]
    NoTransaction {
        /// Id of the job.
        job: JobId,
    },
    /// No job has this id.
    #[error("there is no job {job}; it was never enqueued, was rolled back, or its history was pruned")]
    NotFound {
        /// Id of the job.
        job: JobId,
    },
    /// The job's state does not allow the operation.
    #[error("job {job} is {state}; only a job that is {} can be {done}", join_states(wanted))]
    WrongState {
        /// Id of the job.
        job: JobId,
        /// Current state of the job.
        state: JobState,
        /// States that allow the operation.
        wanted: Vec<JobState>,
        /// The requested operation, as a participle.
        done: String,
    },
    /// The job's state allows the operation, but another transaction has locked the job: it changes the job, or the job runs in it.
    #[error(
        "job {job} is {state}, but another transaction has it locked, possibly the one in which it runs; try again after that has ended"
    )]
    Locked {
        /// Id of the job.
        job: JobId,
        /// Current state of the job.
        state: JobState,
    },
    /// Another job holds the uniqueness key of the job to requeue.
    #[error(
        "job {job} cannot be requeued: job {holder} holds its uniqueness key; cancel that job first, or requeue this one anyway with `--force`"
    )]
    KeyTaken {
        /// Id of the job.
        job: JobId,
        /// Job that holds the key.
        holder: JobId,
    },
    /// An attempt's report or journal entry could not be written by the worker, or the database refused it.
    #[error("the report of an attempt of job {job} could not be written: {why}")]
    NotWritten {
        /// Id of the job.
        job: JobId,
        /// Cause.
        why: String,
    },
    /// A schedule is invalid, or does not support the requested operation.
    #[error("{why}")]
    Schedule {
        /// Cause and remedy.
        why: String,
    },
    /// No schedule has this name.
    #[error("there is no schedule `{name}`; `{} cron list` shows the existing ones", program_name())]
    NoSchedule {
        /// Name of the schedule.
        name: String,
    },
    /// A database error. Displays its message, never its DETAIL, which could contain a row.
    #[error("{}", message(.0))]
    Database(#[source] sqlx::Error),
}

/// Prints the message of `Display`. The driver's own `Debug` prints the server's DETAIL, which may be a whole row including the payload.
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

/// Returns the statements that disable row level security for these tables.
pub(crate) fn disable_row_security(schema: &str, tables: &[String]) -> String {
    let each = tables.iter().map(|table| format!("alter table \"{schema}\".{table} disable row level security"));
    each.collect::<Vec<_>>().join("; ")
}

/// Returns the option that names this schema, unless it is the default one.
fn schema_option(schema: &str) -> String {
    if schema == "queue" { String::new() } else { format!(" --schema {schema}") }
}

/// Returns the states as text: `dead, completed or cancelled`.
fn join_states(states: &[JobState]) -> String {
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
        None => "none".to_owned(),
    }
}
