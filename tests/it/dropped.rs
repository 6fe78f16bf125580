//! Tests that a future of the library leaves no open transaction if it is dropped at any await point. `QUEUE_TEST_DROPS` sets the number
//! of dropped futures.

use std::time::Duration;

use queue_core::{Job as _, JobState, Store, migrate};
use sqlx::{Connection as _, PgConnection, PgPool, Row as _, postgres::PgPoolOptions};
use tests::{Act, Do, TestDb, eventually};

fn acts() -> impl Iterator<Item = Do> + Send {
    (0..3).map(|_| Do { act: Act::Ok(String::new()) })
}

/// Starts a call that uses a transaction, and drops its future after a random time. Returns whether the call finished before the drop.
async fn dropped(pool: &PgPool, lent: &mut PgConnection, kind: usize) -> bool {
    let patience = Duration::from_micros(fastrand::u64(0..4000));
    match kind {
        0 => tokio::time::timeout(patience, async { Do::enqueue_all(acts(), pool).await.map(drop) }).await.is_ok(),
        1 => tokio::time::timeout(patience, async { Do::enqueue_all(acts(), lent).await.map(drop) }).await.is_ok(),
        2 => tokio::time::timeout(patience, async { migrate(&mut pool.acquire().await.unwrap(), Store::default()).await.map(drop) })
            .await
            .is_ok(),
        _ => tokio::time::timeout(patience, async { migrate(lent, Store::default()).await.map(drop) }).await.is_ok(),
    }
}

/// Returns whether statements of this connection run outside of a transaction.
async fn is_outside(connection: &mut PgConnection) -> bool {
    // In the simple query protocol, both times are equal unless the transaction began with an earlier statement.
    sqlx::raw_sql("select now() = statement_timestamp()").fetch_one(connection).await.unwrap().get(0)
}

#[tokio::test]
#[ignore = "deep"]
async fn f45_futures_dropped_anywhere_leave_no_connection_inside_a_transaction() {
    let drops: usize = std::env::var("QUEUE_TEST_DROPS").ok().and_then(|value| value.parse().ok()).unwrap_or(400);
    let db = TestDb::new().await;
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect(&db.url).await.unwrap();
    let mut lent = PgConnection::connect(&db.url).await.unwrap();
    let mut undone = [0; 4];
    let mut round = 0;
    while undone.iter().sum::<usize>() < drops {
        let kind = round % 4;
        round += 1;
        assert!(round < 20 * drops, "only {undone:?} were dropped before they were done");
        undone[kind] += usize::from(!dropped(&pool, &mut lent, kind).await);
        if kind % 2 == 1 {
            assert!(is_outside(&mut lent).await, "call {kind} left a transaction behind");
        } else {
            assert!(is_outside(&mut pool.acquire().await.unwrap()).await, "call {kind} left a transaction behind in the pool");
        }
    }
    println!("dropped of {round}: {undone:?}");
    assert!(undone.iter().all(|undone| *undone > 0), "every kind of call was dropped: {undone:?}");
    eventually("no connection is inside a transaction", async || {
        db.count("select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").await
            == 0
    })
    .await;
    assert_eq!(db.count("select count(*) % 3 from queue.job").await, 0, "all or none");
    let probe = Do { act: Act::Ok(String::new()) }.enqueue(&pool).await.unwrap().id();
    db.run_while(db.worker(), db.until(probe, JobState::Completed)).await;
    db.run_until_idle(db.worker()).await;
    pool.close().await;
    db.finish().await;
}
