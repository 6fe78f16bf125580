//! What can go wrong before a job is stored, in a handler's own transaction, and for whoever operates. Each variant is something a caller does differently; no variant carries a payload.

mod message;

use std::fmt;

pub use self::message::message;
use crate::{
    define::{JobId, JobState},
    payload::PayloadError,
    program::program_name,
};

/// An error of defining, enqueuing, operating, migrating, or of a handler's transaction.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A queue, job type or schema name outside the grammar.
    #[error("`{value}` is not a valid {what}: 1 to {most} of the characters A-Z a-z 0-9 _ . : -")]
    InvalidName {
        /// Which name it is.
        what: &'static str,
        /// The name, shortened and escaped.
        value: String,
        /// The most characters it may have.
        most: usize,
    },
    /// An option outside its range.
    #[error("{what} is {}; it must be {range}", if value.is_empty() { "empty" } else { value.as_str() })]
    OutOfRange {
        /// Which option it is.
        what: &'static str,
        /// The value given.
        value: String,
        /// What is accepted.
        range: &'static str,
    },
    /// A payload that the database would not give back as it is.
    #[error("the payload of `{job_type}` cannot be stored: {source}")]
    Payload {
        /// The job type.
        job_type: &'static str,
        /// What is wrong with it, and where.
        source: PayloadError,
    },
    /// The payload is to be stored encrypted, and cannot be: nothing is enqueued.
    #[error("the payload of `{job_type}` is to be sealed: {why}")]
    Sealing {
        /// The job type.
        job_type: &'static str,
        /// What is missing, and how it is given.
        why: String,
    },
    /// Keys for sealing payloads are wrong.
    #[error("{why}")]
    Keyring {
        /// What is wrong, and what to do about it; no key.
        why: String,
    },
    /// One of several jobs cannot be enqueued, and so none of them is.
    #[error("job {index} of those to enqueue, counted from 0: {source}")]
    OneOfMany {
        /// Which one it is, counted from 0.
        index: usize,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A node of a flow cannot be enqueued, and so nothing of the flow is.
    #[error("the node `{node}`: {source}")]
    Node {
        /// Its name.
        node: String,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// As many jobs wait in the queue as may. The transaction can only be rolled back; see
    /// [`Enqueue::unless_at_capacity`](crate::Enqueue::unless_at_capacity) and
    /// [`Enqueue::wait_for_capacity`](crate::Enqueue::wait_for_capacity) for other ways.
    #[error(
        "the queue `{queue}` is at its capacity of {capacity} jobs; wait for its workers, or raise it with `{} capacity`",
        program_name()
    )]
    AtCapacity {
        /// The queue.
        queue: String,
        /// How many jobs may wait in it.
        capacity: u64,
    },
    /// An enqueue was to wait for capacity in a transaction, which may hold up those that end waiting jobs.
    #[error(
        "an enqueue cannot wait for capacity inside a transaction, which may hold up those that end waiting jobs; do it on the pool, or say `unless_at_capacity`"
    )]
    WaitInTransaction,
    /// The database's encoding is not UTF-8, in which payloads and errors are written.
    #[error(
        "the encoding of this database is {encoding}, and a store needs UTF8; make another database: `create database NAME encoding 'UTF8' locale 'C' \
         template template0`"
    )]
    Encoding {
        /// The database's encoding.
        encoding: String,
    },
    /// The login lacks rights in the store's schema: any at all, or those of a worker.
    #[error("the login `{login}` lacks rights in the schema `{schema}`; give it some: `{fix}`")]
    NoRights {
        /// The schema.
        schema: String,
        /// The login.
        login: String,
        /// Roles that have rights and are the login's, which does not inherit them.
        not_inherited: Vec<String>,
        /// The statement that gives it rights.
        fix: String,
    },
    /// Row level security hides rows of the store's tables from this login.
    #[error(
        "row level security hides rows of the schema `{schema}` from this login; switch it off, `{}`, or give the login `bypassrls`",
        no_row_security(schema, .tables)
    )]
    RowSecurity {
        /// The schema.
        schema: String,
        /// The tables.
        tables: Vec<String>,
    },
    /// The schema has no tables of ours.
    #[error(
        "the schema `{schema}` holds no job queue; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        of_schema(schema)
    )]
    NotMigrated {
        /// The schema.
        schema: String,
    },
    /// The schema was migrated by an older release.
    #[error(
        "the schema `{schema}` is at version {found}, older than this release's {known}; run `{} migrate{}`, or call `queue_core::migrate`",
        program_name(),
        of_schema(schema)
    )]
    OlderSchema {
        /// The schema.
        schema: String,
        /// The version found.
        found: i32,
        /// The newest version that this release knows.
        known: i32,
    },
    /// The schema was migrated by a newer release, with which this one cannot work.
    #[error(
        "the schema `{schema}` is at version {found}, which works with releases that know {compatible}; this one is older and knows {known}; deploy the newer release here too"
    )]
    NewerSchema {
        /// The schema.
        schema: String,
        /// The version found.
        found: i32,
        /// The version that a release must know to work with it.
        compatible: i32,
        /// The newest version that this release knows.
        known: i32,
    },
    /// A migration that was applied has other contents than this release's.
    #[error(
        "migration {version} of the schema `{schema}` was applied with other contents than this release's; restore the file that was applied"
    )]
    ChangedMigration {
        /// The schema.
        schema: String,
        /// Which migration it is.
        version: i32,
    },
    /// The schema holds something else than a store of ours.
    #[error(
        "the schema `{schema}` holds no store of this project's releases: {why}; name another schema, or drop this one if nobody needs it"
    )]
    ForeignSchema {
        /// The schema.
        schema: String,
        /// What is wrong with it.
        why: String,
    },
    /// A migration did not get a lock for a minute: a transaction of somebody else's holds it.
    #[error(
        "the schema `{schema}` cannot be migrated while {holders} hold locks on its tables; end their transactions, then migrate again"
    )]
    SchemaInUse {
        /// The schema.
        schema: String,
        /// Who they are.
        holders: String,
    },
    /// No store goes by this name, or none takes new tenants.
    #[error("there is no store `{name}`, or none that takes new tenants; see `Stores::add`")]
    NoStore {
        /// The name.
        name: String,
    },
    /// A tenant is in no store, and the rule gives it none.
    #[error("the tenant `{key}` is in no store; place it with `Stores::place`")]
    NotPlaced {
        /// The tenant's key.
        key: String,
    },
    /// A tenant has left the store in which a transaction was to enqueue for it. The transaction is as it was.
    #[error("the tenant `{key}` is in another store by now; ask `Stores::of` again, and enqueue there")]
    Moved {
        /// The tenant's key.
        key: String,
    },
    /// A tenant cannot move: it is moving already, or is there, or the store is closed.
    #[error(
        "the tenant `{key}` cannot move into the store `{store}`: it is there already, or moves (see `Stores::moves`), or the store is closed"
    )]
    CannotMove {
        /// The tenant's key.
        key: String,
        /// Where it was to go.
        store: String,
    },
    /// The attempt has no right to its job any more: others have it, or it is over. What it wrote in the transaction is rolled back.
    #[error("the lease on job {job} is lost, or the job is over already: this attempt can change nothing any more")]
    LeaseLost {
        /// The job.
        job: JobId,
    },
    /// The job's type is transactional: its attempt is in a transaction already, which ends the job.
    #[error(
        "job {job} is of a transactional type: use `cx.transaction()`, which is committed with the job's completion, instead of `cx.begin()`"
    )]
    Transactional {
        /// The job.
        job: JobId,
    },
    /// A checkpoint that the database would not give back as it is.
    #[error("a checkpoint of job {job} cannot be stored: {source}")]
    Checkpoint {
        /// The job.
        job: JobId,
        /// What is wrong with it, and where.
        source: PayloadError,
    },
    /// The payload of a signal, which the database would not give back as it is.
    #[error("the payload of a signal to job {job} cannot be stored: {source}")]
    Signal {
        /// The job.
        job: JobId,
        /// What is wrong with it, and where.
        source: PayloadError,
    },
    /// The checkpoint that was kept is of another type.
    #[error("the checkpoint of job {job} does not fit the type `{rust_type}` (column {column}); treat it as none, or read the older type")]
    CheckpointType {
        /// The job.
        job: JobId,
        /// The type asked for.
        rust_type: &'static str,
        /// Where in the JSON text.
        column: usize,
    },
    /// A step of a durable job cannot be what was asked for.
    #[error("the step `{step}` of job {job}: {why}")]
    Step {
        /// The job.
        job: JobId,
        /// The step's name.
        step: String,
        /// What is wrong, and what to do about it.
        why: String,
    },
    /// The attempt runs in a test, which has lent no transaction to its handler.
    #[cfg(feature = "testing")]
    #[error("job {job} runs in a test without a transaction to begin: use `testing::drain(&mut tx).pool(&pool)`")]
    NoTransaction {
        /// The job.
        job: JobId,
    },
    /// No job has this id.
    #[error("there is no job {job}; it was never enqueued, was rolled back, or its history was pruned")]
    NotFound {
        /// The job.
        job: JobId,
    },
    /// The job is not in a state in which this can be done.
    #[error("job {job} is {state}; only a job that is {} can be {done}", listed(wanted))]
    WrongState {
        /// The job.
        job: JobId,
        /// The state it is in.
        state: JobState,
        /// The states in which it could be done.
        wanted: Vec<JobState>,
        /// What was asked for, as a participle.
        done: String,
    },
    /// It could be done in the state that the job is in, but another transaction has the job locked: somebody changes it, or it runs in one.
    #[error("job {job} is {state}, but another transaction has it locked, be it one in which it runs; try again when that has ended")]
    Locked {
        /// The job.
        job: JobId,
        /// The state it is in.
        state: JobState,
    },
    /// Another job has taken the uniqueness key of a job that is to be requeued.
    #[error(
        "job {job} cannot be requeued: job {holder} has taken its uniqueness key; cancel that one first, or requeue this one beside it with `--force`"
    )]
    KeyTaken {
        /// The job.
        job: JobId,
        /// Which holds its key.
        holder: JobId,
    },
    /// The worker could not write what an attempt reported or journaled, or the database refused it.
    #[error("what an attempt of job {job} reported could not be written: {why}")]
    NotWritten {
        /// The job.
        job: JobId,
        /// What failed.
        why: String,
    },
    /// A schedule is wrong, or what was asked for does not go with it.
    #[error("{why}")]
    Schedule {
        /// What is wrong, and what to do about it.
        why: String,
    },
    /// No schedule has this name.
    #[error("there is no schedule `{name}`; `{} cron list` shows those there are", program_name())]
    NoSchedule {
        /// The name.
        name: String,
    },
    /// The database failed. Its message is shown, its DETAIL never: that may print a row.
    #[error("{}", message(.0))]
    Database(#[source] sqlx::Error),
}

/// What `Display` says. The driver's own `Debug` prints the server's DETAIL, which may be a whole row, payload included.
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

/// The statements that switch row level security off for these tables.
pub(crate) fn no_row_security(schema: &str, tables: &[String]) -> String {
    let each = tables.iter().map(|table| format!("alter table \"{schema}\".{table} disable row level security"));
    each.collect::<Vec<_>>().join("; ")
}

/// The option that names this schema, if it is not the default one.
fn of_schema(schema: &str) -> String {
    if schema == "queue" { String::new() } else { format!(" --schema {schema}") }
}

/// The states in words: `dead, completed or cancelled`.
fn listed(states: &[JobState]) -> String {
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
        None => "none".to_owned(),
    }
}
