//! Rolls up the counts that processes have written, and deletes old totals. Every worker can roll up counts.

use queue_core::Store;
use sqlx::PgConnection;

use crate::live::bounded;

/// Maximum number of rows per statement. A full statement takes about a tenth of a second.
const MAX_ROWS: i32 = 5000;

/// Maximum number of statements per call. A larger backlog, probably caused by earlier failures, is left to later calls.
const MAX_STATEMENTS: usize = 20;

/// Adds written counts to the totals by queue, type and time. Does nothing if all counts are less than half a minute old.
pub(crate) async fn roll_up(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    for _ in 0..MAX_STATEMENTS {
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/roll_up.sql"))).bind(MAX_ROWS);
        let (added, refused): (i64, i32) = bounded(statement.fetch_one(&mut *connection)).await?;
        if refused > 0 {
            tracing::warn!(refused, "cannot add up the counts of some queues and types: rows are locked or refused; retrying");
        }
        if refused > 0 || added < i64::from(MAX_ROWS) {
            break;
        }
    }
    Ok(())
}

/// Deletes totals whose retention has passed.
pub(crate) async fn prune_totals(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    while {
        let deleted = sqlx::query_scalar::<_, i64>(store.sql(include_str!("../../sql/prune_totals.sql"))).bind(i64::from(MAX_ROWS));
        bounded(deleted.fetch_one(&mut *connection)).await? >= i64::from(MAX_ROWS)
    } {}
    Ok(())
}
