//! What a durable job has done so far.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{connect::IntoConnection, context::TIMEOUT_SUFFIX, define::JobId, error::Error, schema::Store};

/// A step of a [durable](crate::Options::durable) job that is done, or a sleep that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobStep {
    /// Its name.
    pub name: String,
    /// The number of the attempt that did it.
    pub attempt: i16,
    /// When it was journaled, by the database's clock.
    pub at: DateTime<Utc>,
    /// How long it took, in ms; of a sleep nothing.
    pub ran_ms: i32,
    /// Of a sleep: when it is over. Of a wait for a signal that did not come: when that was over; `NAME (timeout)` says it beforehand.
    pub until: Option<DateTime<Utc>>,
}

impl JobStep {
    /// Whether it is a wait for a signal that did not come in time.
    pub fn is_timed_out(&self) -> bool {
        self.until.is_some_and(|until| until < self.at)
    }

    /// If it is a wait with an end: the name of what is waited for. Such a wait stays in the journal, as a step called `NAME (timeout)`.
    pub fn waits_for(&self) -> Option<&str> {
        self.until.and(self.name.strip_suffix(TIMEOUT_SUFFIX)).filter(|name| !name.is_empty())
    }
}

/// The steps of a job, without what they gave, in the order in which they were done: the first thousand. None of a job that is gone, or not durable.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for step in operate::steps(&pool, Store::default(), job).await? {
///     println!("{}: {} after {} ms", step.at, step.name, step.ran_ms);
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn steps(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<JobStep>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/steps.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
