//! Adding up what processes have said, and forgetting what is old. Any worker does it.

use queue_core::Store;
use sqlx::PgConnection;

use crate::live::bounded;

/// The most rows of one statement: about a tenth of a second.
const MOST: i32 = 5000;

/// With more there is something wrong with whoever should have added them up before. The next ones are for the next time.
const STATEMENTS: usize = 20;

/// Adds up what has been said for a while.
pub(crate) async fn roll_up(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    for _ in 0..STATEMENTS {
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/roll_up.sql"))).bind(MOST);
        let (added, refused): (i64, i32) = bounded(statement.fetch_one(&mut *connection)).await?;
        if refused > 0 {
            tracing::warn!(
                refused,
                "the figures of some queues and types cannot be added up now: they are locked or refused; trying again"
            );
        }
        if refused > 0 || added < i64::from(MOST) {
            break;
        }
    }
    Ok(())
}

/// Deletes totals that have been kept for long enough.
pub(crate) async fn prune_totals(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    while {
        let gone = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_totals.sql"))).bind(i64::from(MOST));
        bounded(gone.fetch_one(&mut *connection)).await? >= i64::from(MOST)
    } {}
    Ok(())
}
