//! Tests historical statistics: the counts that workers keep, their storage and roll-up, and the queries.

mod counted;
mod failing;
mod kept;
mod refused;
mod read;
mod sized;

use std::time::Duration;

use queue_core::{
    Queue,
    operate::{AttemptStatistics, HistoryRange},
};
use sqlx::PgConnection;
use tests::{TestDb, tallies::Tally};
use uuid::Uuid;

/// Returns the totals of the last hour, or `None` if no attempt ended.
async fn together(db: &TestDb) -> Option<AttemptStatistics> {
    Queue::new(&db.pool).history(&HistoryRange::default()).await.unwrap().pop()
}

/// Returns the totals per queue and type for the period of length `last` that ends now.
async fn apart(db: &TestDb, last: Duration) -> Vec<AttemptStatistics> {
    Queue::new(&db.pool).history(&HistoryRange { last, apart: true, ..HistoryRange::default() }).await.unwrap()
}

/// Writes statistics once, dated `ago` before now.
async fn write_tallies(on: &mut PgConnection, ago: Duration, tallies: &[Tally<'_>]) {
    assert_eq!(tests::tallies::write(on, (Uuid::new_v4(), 1), ago.as_secs_f64(), tallies).await.unwrap(), tallies.len() as i64);
}

/// Checks that at each resolution the totals per queue and type, and the totals of all queues, each add up to `completed`.
async fn check_totals(db: &TestDb, completed: i64) {
    let sums: Vec<(i32, bool, i64)> =
        sqlx::query_as("select step, queue = '', sum(completed)::bigint from queue.tally_total group by 1, 2 having sum(completed) <> $1")
            .bind(completed)
            .fetch_all(&db.pool)
            .await
            .unwrap();
    assert!(sums.is_empty(), "not {completed}: {sums:?}");
    assert_eq!(db.count("select count(distinct (step, queue = '')) from queue.tally_total").await, 8);
}
