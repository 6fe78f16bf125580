//! The past in figures: what workers count, how it is kept and added up, and what is read of it.

mod counted;
mod failing;
mod kept;
mod refused;
mod read;
mod sized;

use std::time::Duration;

use queue_core::{
    Store,
    operate::{self, Figures, Past},
};
use sqlx::PgConnection;
use tests::{TestDb, tallies::Tally};
use uuid::Uuid;

/// What the last hour was, all together; nothing if nothing came of any attempt.
async fn together(db: &TestDb) -> Option<Figures> {
    operate::history(&db.pool, Store::default(), &Past::default()).await.unwrap().pop()
}

/// The same, each queue and type apart.
async fn apart(db: &TestDb, last: Duration) -> Vec<Figures> {
    operate::history(&db.pool, Store::default(), &Past { last, apart: true, ..Past::default() }).await.unwrap()
}

/// Says this once, of so long ago.
async fn say(on: &mut PgConnection, ago: Duration, said: &[Tally<'_>]) {
    assert_eq!(tests::tallies::say(on, (Uuid::new_v4(), 1), ago.as_secs_f64(), said).await.unwrap(), said.len() as i64);
}

/// Each row of the totals has all that was said, whatever the length of its steps.
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
