//! How many turns the jobs of a fair key have.

use serde::Serialize;
use sqlx::FromRow;

use super::refusal::explain;
use crate::{
    connect::IntoConnection,
    error::Error,
    schema::{Store, check_name},
};

/// A fair key that has more turns than others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[non_exhaustive]
pub struct Weight {
    /// The job type, by the name under which its jobs are stored.
    pub job_type: String,
    /// The fair key.
    pub fair: String,
    /// How many turns its jobs have for one of any other key.
    pub weight: i32,
}

/// Gives the jobs of a type that have this fair key so many turns for one of any other key, or as many as any if that is `None`. From 1 to 1000.
/// It is in force from the next claims on, whatever the workers' release, and until it is changed.
///
/// ```no_run
/// # use queue_core::{Store, operate};
/// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
/// operate::set_weight(&pool, Store::default(), "render", "acme", Some(3)).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::OutOfRange`] if the weight is out of range, or the key has NUL; the database's.
pub async fn set_weight(on: impl IntoConnection<'_>, store: Store, job_type: &str, fair: &str, weight: Option<u16>) -> Result<(), Error> {
    check_name("job type name", job_type)?;
    if let Some(weight) = weight.filter(|weight| !(1..=1000).contains(weight)) {
        return Err(Error::OutOfRange { what: "the weight", value: weight.to_string(), range: "1 to 1000" });
    }
    if fair.contains('\0') {
        return Err(Error::OutOfRange { what: "the fair key", value: fair.escape_debug().take(32).collect(), range: "a text without NUL" });
    }
    let statement = sqlx::query(store.sql(include_str!("../../sql/set_weight.sql"))).bind(job_type).bind(fair).bind(weight.map(i32::from));
    let mut on = on.into_connection();
    statement.execute(&mut *on.acquire().await?).await.map(drop).map_err(|error| explain(error, store))
}

/// The fair keys that have a weight, of one job type or of any.
///
/// # Errors
/// The database's.
pub async fn weights(on: impl IntoConnection<'_>, store: Store, job_type: Option<&str>) -> Result<Vec<Weight>, Error> {
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/weights.sql"))).bind(job_type);
    let mut on = on.into_connection();
    statement.fetch_all(&mut *on.acquire().await?).await.map_err(|error| explain(error, store))
}
