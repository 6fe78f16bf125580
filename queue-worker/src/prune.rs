//! Keeping the store small: days made ahead, days dropped, history deleted once its retention is over.
//!
//! Any worker does it at any time; the statements see to it that one works and the others pass.

use std::time::Duration;

use queue_core::{Store, migrate::DAYS_AHEAD};
use sqlx::PgConnection;

use crate::connect::bounded;

/// The most jobs of one statement.
const MOST: i64 = 5000;

/// So many uniqueness keys are looked at by one statement: their producers wait for it.
const KEYS: i32 = 500;

/// So many of those statements follow each other at most.
const MOST_LOOKS: usize = 200;

/// Makes days ahead, deletes history of no day, and last, because it may fail for a lock, drops the days that are over.
pub(crate) async fn prune(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    let seconds = retention.as_secs_f64();
    let made = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../sql/add_days.sql"))).bind(DAYS_AHEAD);
    bounded(made.fetch_one(&mut *connection)).await?;
    while {
        let over = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../sql/prune_done.sql"))).bind(seconds).bind(MOST);
        bounded(over.fetch_one(&mut *connection)).await? >= MOST
    } {}
    forget_keys(connection, store).await?;
    bounded(sqlx::query(store.sql(include_str!("../sql/prune_workers.sql"))).execute(&mut *connection)).await?;
    while {
        let dropped = sqlx::query_scalar::<_, bool>(store.sql(include_str!("../sql/drop_day.sql"))).bind(seconds);
        bounded(dropped.fetch_one(&mut *connection)).await?
    } {}
    Ok(())
}

/// Looks at some keys, and at more as long as a quarter of them is held no more: so there are never many such, and a large table of keys that
/// are held costs little.
async fn forget_keys(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    for _ in 0..MOST_LOOKS {
        let gone = sqlx::query_scalar::<_, i32>(store.sql(include_str!("../sql/forget_keys.sql"))).bind(KEYS);
        if bounded(gone.fetch_one(&mut *connection)).await? < KEYS / 4 {
            break;
        }
    }
    Ok(())
}
