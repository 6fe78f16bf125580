//! What a durable job has spawned.

use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{connect::IntoConnection, define::JobId, error::Error, schema::Store};

/// A child of a [durable](crate::Options::durable) job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct JobChild {
    /// The step that spawned it.
    pub name: String,
    /// The child.
    pub id: JobId,
    /// What its parent was told that it came to: `completed`, `dead`, `cancelled` or `expired`; `None` of one that is not over.
    pub state: Option<String>,
    /// Where a child is that is not over, of the first hundred of those; `None` of one that is over, or gone.
    pub now: Option<String>,
}

impl JobChild {
    /// What it came to, or where it is; `not over` if that was not looked up.
    pub fn whereabouts(&self) -> &str {
        self.state.as_deref().or(self.now.as_deref()).unwrap_or("not over")
    }
}

/// The children of a job, in the order in which they were spawned: the first thousand. None of a job that is gone, or not durable.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, job: queue_core::JobId) -> Result<(), queue_core::Error> {
/// use queue_core::{Store, operate};
///
/// for child in operate::children(&pool, Store::default(), job).await? {
///     println!("{}: {} {}", child.name, child.id, child.whereabouts());
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// The database's.
pub async fn children(on: impl IntoConnection<'_>, store: Store, job: JobId) -> Result<Vec<JobChild>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/children.sql"))).bind(job);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
