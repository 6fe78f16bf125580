//! Audit log of operations: actor, operation, target, number of jobs and time.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, PgConnection};

use super::rejection::explain;
use crate::{
    error::Error,
    results::{Queue, QueueConnection},
    schema::Store,
};

/// Description of an operation for the audit log, supplied by the program that performs the operation.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::{Queue, operate::{Filter, Note}};
///
/// let mails = Filter { queue: Some("mail".into()), ..Filter::default() };
/// let note = Note { actor: "ada".into(), act: "requeue".into(), what: "queue mail".into() };
/// Queue::new(pool).jobs().matching(&mails).requeue().noted(note).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Note {
    /// Name of the acting person or program. Truncated to 100 characters.
    pub actor: String,
    /// One-word name of the operation. Truncated to 40 characters.
    pub act: String,
    /// Target of the operation, such as a job, a queue or a filter. Truncated to 500 characters. Must not contain payloads.
    pub what: String,
}

/// Entry of the audit log, as stored.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for entry in Queue::new(pool).audit(None, 20).await? {
///     println!("{} {}: {} {}, {} jobs", entry.at, entry.actor, entry.act, entry.what, entry.jobs);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AuditRecord {
    /// Number of the entry. Later entries have higher numbers.
    pub id: i64,
    /// Time of the operation, according to the database clock.
    pub at: DateTime<Utc>,
    /// Database role that performed the operation.
    pub role: String,
    /// Name of the acting person or program, as reported in [`Note::actor`].
    pub actor: String,
    /// One-word name of the operation.
    pub act: String,
    /// Target of the operation.
    pub what: String,
    /// Number of jobs changed; 0 if the operation does not concern jobs.
    pub jobs: i64,
}

impl AuditRecord {
    /// Maximum number of entries that [`Queue::audit`] returns.
    pub const MOST: i64 = 500;
}

impl<C: QueueConnection> Queue<C> {
    /// Records an operation in the audit log and returns the number of the entry. Call this method in the operation's transaction, so
    /// that the operation and the entry commit together. The last 10,000 entries are kept.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn record_operation(&self, note: &Note, jobs: u64) -> Result<i64, Error> {
        write_entry(&mut *self.connection().await?, self.store, note, jobs).await.map_err(|error| explain(error, self.store))
    }

    /// Returns up to `most` entries of the audit log, newest first. `most` is clamped to the range from 1 to [`AuditRecord::MOST`]. If
    /// `before` is set, returns only entries with numbers below `before`.
    ///
    /// # Errors
    /// Returns [`Error::Database`] if the query fails.
    pub async fn audit(&self, before: Option<i64>, most: u32) -> Result<Vec<AuditRecord>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/audit.sql")));
        let statement = statement.bind(before.unwrap_or(i64::MAX)).bind(i64::from(most).clamp(1, AuditRecord::MOST));
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}

/// Writes an audit entry and returns its number. NUL characters are replaced because PostgreSQL text cannot contain NUL.
pub(super) async fn write_entry(connection: &mut PgConnection, store: Store, note: &Note, jobs: u64) -> sqlx::Result<i64> {
    let [actor, act, what] = [&note.actor, &note.act, &note.what].map(|text| text.replace('\0', "\u{fffd}"));
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/record_operation.sql"))).bind(actor).bind(act).bind(what);
    statement.bind(jobs.cast_signed()).fetch_one(connection).await
}

/// Adds `jobs` to the job count of the entry with the number `note`.
pub(super) async fn add_jobs(connection: &mut PgConnection, store: Store, note: i64, jobs: u64) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/count_operation.sql"))).bind(note).bind(jobs.cast_signed());
    statement.execute(connection).await.map(drop)
}
