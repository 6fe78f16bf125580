//! Statistics of finished attempts, as workers write them to the database.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::protocol::sql;

/// Statistics of a process for one queue and type: the number of completed attempts, and one histogram for both the wait times and the run
/// times.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    /// Name of the queue.
    pub queue: &'a str,
    /// Name of the job type.
    pub job_type: &'a str,
    /// Number of completed attempts.
    pub completed: i64,
    /// Histogram of the wait times and of the run times, in the format of the tables.
    pub histogram: &'a str,
}

impl<'a> Tally<'a> {
    /// Returns the statistics of one attempt that completed immediately.
    pub fn one(queue: &'a str) -> Self {
        Self { queue, job_type: "do", completed: 1, histogram: "1" }
    }
}

/// Writes the statistics of the process `source` as its batch `number`, dated `ago_s` seconds ago. Returns the number of rows written.
///
/// # Errors
/// Returns a database error if a statement fails.
pub async fn write(on: &mut PgConnection, (source, number): (Uuid, i64), ago_s: f64, tallies: &[Tally<'_>]) -> sqlx::Result<i64> {
    let texts = |text: fn(&Tally<'_>) -> String| tallies.iter().map(text).collect::<Vec<_>>();
    let mut statement = sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/tally.sql")))
        .bind(source)
        .bind(number)
        .bind(ago_s * 1000.0)
        .bind(texts(|one| one.queue.to_owned()))
        .bind(texts(|one| one.job_type.to_owned()))
        .bind(tallies.iter().map(|one| one.completed).collect::<Vec<_>>());
    for _ in 0..10 {
        statement = statement.bind(vec![0_i64; tallies.len()]);
    }
    statement.bind(texts(|one| one.histogram.to_owned())).bind(texts(|one| one.histogram.to_owned())).fetch_one(on).await
}

/// Rolls up at most `most` rows. Returns the number of rows, and the number of pairs of queue and job type that could not be rolled up.
///
/// # Errors
/// Returns a database error if the statement fails.
pub async fn roll_up(on: &mut PgConnection, most: i32) -> sqlx::Result<(i64, i32)> {
    sqlx::query_as(sql(include_str!("../../queue-worker/sql/roll_up.sql"))).bind(most).fetch_one(on).await
}

/// Deletes up to `most` old totals of each resolution. Returns the largest number of totals deleted for any one resolution.
///
/// # Errors
/// Returns a database error if the statement fails.
pub async fn prune_totals(on: &mut PgConnection, most: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql(include_str!("../../queue-worker/sql/prune_totals.sql"))).bind(most).fetch_one(on).await
}
