//! Who did what to how many jobs, and when.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, PgConnection};

use super::refusal::explain;
use crate::{connect::IntoConnection, error::Error, schema::Store};

/// Who does what, in the words of the program that lets it be done.
#[derive(Clone, Debug)]
pub struct Note {
    /// Who: a name that the program knows. At most 100 characters, as the rest is cut.
    pub actor: String,
    /// What is done, in a word; 40 characters.
    pub act: String,
    /// To what: a job, a queue, a filter; 500 characters. No payload.
    pub what: String,
}

/// An act that was noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AuditRecord {
    /// Its number; later ones have higher ones.
    pub id: i64,
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// The role of the database that did it.
    pub role: String,
    /// Who did it, as the program says.
    pub actor: String,
    /// What was done.
    pub act: String,
    /// To what.
    pub what: String,
    /// To how many jobs; none if it is not about jobs.
    pub jobs: i64,
}

impl AuditRecord {
    /// So many are shown at most.
    pub const MOST: i64 = 500;
}

/// Notes an act, best in the transaction that does it; returns the note's number. The last 10,000 are kept.
///
/// # Errors
/// The database's.
pub async fn note_act(on: impl IntoConnection<'_>, store: Store, note: &Note, jobs: u64) -> Result<i64, Error> {
    let mut on = on.into_connection();
    noted(&mut *on.acquire().await?, store, note, jobs).await.map_err(|error| explain(error, store))
}

/// NUL is no text of the database's.
pub(super) async fn noted(connection: &mut PgConnection, store: Store, note: &Note, jobs: u64) -> sqlx::Result<i64> {
    let [actor, act, what] = [&note.actor, &note.act, &note.what].map(|text| text.replace('\0', "\u{fffd}"));
    let statement = sqlx::query_scalar(store.sql(include_str!("../../sql/note_act.sql"))).bind(actor).bind(act).bind(what);
    statement.bind(jobs.cast_signed()).fetch_one(connection).await
}

/// It was done to so many more.
pub(super) async fn count_more(connection: &mut PgConnection, store: Store, note: i64, jobs: u64) -> sqlx::Result<()> {
    let statement = sqlx::query(store.sql(include_str!("../../sql/count_act.sql"))).bind(note).bind(jobs.cast_signed());
    statement.execute(connection).await.map(drop)
}

/// The acts that were noted, the newest first: so many at most, below a number if one is given.
///
/// # Errors
/// The database's.
pub async fn audit(on: impl IntoConnection<'_>, store: Store, before: Option<i64>, most: u32) -> Result<Vec<AuditRecord>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/audit.sql")));
    let statement = statement.bind(before.unwrap_or(i64::MAX)).bind(i64::from(most).clamp(1, AuditRecord::MOST));
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
