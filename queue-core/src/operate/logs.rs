//! What attempts have logged.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// What an attempt of a job has logged, of a type that says [`keep_logs`](crate::Options::keep_logs).
#[derive(Clone, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptLog {
    /// The number of the attempt.
    pub attempt: i16,
    /// When it was written, by the database's clock: at the attempt's end.
    pub at: DateTime<Utc>,
    /// How many lines of the middle are left out, or cut; the text tells it in their place.
    pub cut: i64,
    /// The lines, without characters that control a terminal.
    pub text: String,
}

/// Without the text, which may be secret.
impl std::fmt::Debug for AttemptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { attempt, at, cut, text } = self;
        f.debug_struct("AttemptLog").field("attempt", attempt).field("at", at).field("cut", cut).field("bytes", &text.len()).finish()
    }
}

/// What the attempts of a job have logged, in their order; none of a job that is gone, or whose type keeps no logs.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for log in operate::logs(&pool, Store::default(), job).await? {
///     println!("attempt {}:\n{}", log.attempt, log.text);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn logs(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<AttemptLog>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/logs.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
