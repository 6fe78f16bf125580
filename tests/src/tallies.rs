//! Figures of the past, as workers write them and keep them.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::protocol::sql;

/// What a process says of one queue and type: so many completed, each after this histogram as the tables have it.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The type.
    pub job_type: &'a str,
    /// How many completed.
    pub completed: i64,
    /// Of both histograms.
    pub histogram: &'a str,
}

impl<'a> Tally<'a> {
    /// One that completed at once.
    pub fn one(queue: &'a str) -> Self {
        Self { queue, job_type: "do", completed: 1, histogram: "1" }
    }
}

/// Says this under that number, of some time ago; returns how many rows were written.
///
/// # Errors
/// The database's.
pub async fn say(on: &mut PgConnection, (source, number): (Uuid, i64), ago_s: f64, said: &[Tally<'_>]) -> sqlx::Result<i64> {
    let texts = |text: fn(&Tally<'_>) -> String| said.iter().map(text).collect::<Vec<_>>();
    let mut statement = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/tally.sql")))
        .bind(source)
        .bind(number)
        .bind(ago_s * 1000.0)
        .bind(texts(|one| one.queue.to_owned()))
        .bind(texts(|one| one.job_type.to_owned()))
        .bind(said.iter().map(|one| one.completed).collect::<Vec<_>>());
    for _ in 0..10 {
        statement = statement.bind(vec![0_i64; said.len()]);
    }
    statement.bind(texts(|one| one.histogram.to_owned())).bind(texts(|one| one.histogram.to_owned())).fetch_one(on).await
}

/// Adds up so many rows; returns how many, and of how many queues and types they could not be.
///
/// # Errors
/// The database's.
pub async fn roll_up(on: &mut PgConnection, most: i32) -> sqlx::Result<(i64, i32)> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/roll_up.sql"))).bind(most).fetch_one(on).await
}

/// Deletes so many old totals of each step; returns how many of one at most.
///
/// # Errors
/// The database's.
pub async fn prune_totals(on: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_totals.sql"))).bind(most).fetch_one(on).await
}
