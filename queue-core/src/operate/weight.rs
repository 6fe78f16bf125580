//! Weights of fairness keys.

use serde::Serialize;
use sqlx::FromRow;

use super::rejection::explain;
use crate::{
    error::Error,
    results::{Queue, QueueConnection},
    schema::check_name,
};

/// Weight of a fairness key: its share of turns relative to other keys of the job type.
///
/// ```no_run
/// # async fn example(pool: &sqlx::PgPool) -> Result<(), queue_core::Error> {
/// use queue_core::Queue;
///
/// for weight in Queue::new(pool).weights(Some("render")).await? {
///     println!("{}: {} turns", weight.fair, weight.weight);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, FromRow)]
#[non_exhaustive]
pub struct Weight {
    /// Name of the job type that the weight applies to.
    pub job_type: String,
    /// Text of the fairness key.
    pub fair: String,
    /// Number of turns of the key for each turn of a key without a weight.
    pub weight: i32,
}

impl<C: QueueConnection> Queue<C> {
    /// Sets a weight from 1 to 1000 for a job type's fairness key. `None` removes the weight. Jobs of the key get `weight` turns for each
    /// turn of a key without a weight. The weight takes effect with the next claims, and applies to workers of all releases until it is
    /// changed.
    ///
    /// ```no_run
    /// # use queue_core::Queue;
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), queue_core::Error> {
    /// Queue::new(&pool).set_weight("render", "acme", Some(3)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::InvalidName`] for an invalid job type name, and [`Error::OutOfRange`] if the weight is out of range or the key
    /// contains NUL. Returns an error if the database query fails.
    pub async fn set_weight(&self, job_type: &str, fair: &str, weight: Option<u16>) -> Result<(), Error> {
        check_name("job type name", job_type)?;
        if let Some(weight) = weight.filter(|weight| !(1..=1000).contains(weight)) {
            return Err(Error::OutOfRange { what: "the weight", value: weight.to_string(), range: "1 to 1000" });
        }
        if fair.contains('\0') {
            return Err(Error::OutOfRange {
                what: "the fair key",
                value: fair.escape_debug().take(32).collect(),
                range: "text without NUL",
            });
        }
        let statement =
            sqlx::query(self.store.sql(include_str!("../../sql/set_weight.sql"))).bind(job_type).bind(fair).bind(weight.map(i32::from));
        statement.execute(&mut *self.connection().await?).await.map(drop).map_err(|error| explain(error, self.store))
    }

    /// Returns the fairness keys that have a weight, for one job type or for all job types.
    ///
    /// # Errors
    /// Returns an error if the database query fails.
    pub async fn weights(&self, job_type: Option<&str>) -> Result<Vec<Weight>, Error> {
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/weights.sql"))).bind(job_type);
        statement.fetch_all(&mut *self.connection().await?).await.map_err(|error| explain(error, self.store))
    }
}
