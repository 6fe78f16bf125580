//! Deletes lanes that have been unused for the retention time, in steps that never block producers.
//!
//! First, a lane's row is marked as leaving. Producers then ignore the row and insert a new row if they use the lane. The marked row is
//! deleted once all transactions that may have used it have ended, and the lane has a new row or no jobs. Each round performs one step.
//! Any worker can continue where another worker stopped.

use std::{collections::HashSet, time::Duration};

use queue_core::Store;
use sqlx::{FromRow, PgConnection};

use crate::live::bounded;

/// Maximum number of rows per statement.
const MAX_ROWS: i64 = 1000;

/// Maximum number of jobs per scanned page. A round scans at most [`PAGES`] pages.
const PAGE_JOBS: i64 = 5000;
const PAGES: usize = 100;

/// Time for which a leaving lane is kept in addition to the retention. After this time, the partitions for the days before the mark have
/// been dropped, so few jobs remain to be scanned.
const DAY: Duration = Duration::from_hours(24);

/// Lane row that is marked as leaving and may be deleted.
#[derive(FromRow)]
struct LeavingLane {
    lane: i64,
    leaving: String,
    /// Lane id as stored with the lane's jobs. For a quarantine lane, this is the id of the plain lane.
    plain: i64,
    walked: i64,
    above: i64,
}

/// Runs one round of deleting unused lanes.
pub(super) async fn delete_lanes(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    // Advances rows that earlier rounds marked, if all running transactions see the marks. This round marks more rows in its last step.
    advance_marks(&mut *connection, store).await?;
    let replaced = sqlx::query_scalar(store.sql(include_str!("../../sql/replaced_lanes.sql"))).bind(MAX_ROWS);
    let _: i64 = bounded(replaced.fetch_one(&mut *connection)).await?;
    let deleted = delete_unused(&mut *connection, store, retention + DAY).await?;
    if deleted > 0 {
        tracing::info!(lanes = deleted, "deleted lanes that were unused for as long as history is kept");
    }
    let leave = sqlx::query_scalar(store.sql(include_str!("../../sql/leave_lanes.sql"))).bind(retention.as_secs_f64()).bind(MAX_ROWS);
    let _: i64 = bounded(leave.fetch_one(&mut *connection)).await?;
    Ok(())
}

/// Advances the deletion of each leaving lane whose mark is visible to all running transactions.
async fn advance_marks(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let unseen = sqlx::query_scalar(store.sql(include_str!("../../sql/unseen_lanes.sql")));
    let unseen: Vec<String> = bounded(unseen.fetch_all(&mut *connection)).await?;
    let pass = sqlx::query(store.sql(include_str!("../../sql/pass_lanes.sql"))).bind(unseen).bind(MAX_ROWS);
    bounded(pass.execute(connection)).await.map(drop)
}

/// Scans jobs for uses of the leaving lanes and deletes the lanes without jobs. Returns the number of deleted lanes.
async fn delete_unused(connection: &mut PgConnection, store: Store, unused: Duration) -> sqlx::Result<i64> {
    let due = sqlx::query_as(store.sql(include_str!("../../sql/due_lanes.sql"))).bind(unused.as_secs_f64()).bind(MAX_ROWS);
    let due: Vec<LeavingLane> = bounded(due.fetch_all(&mut *connection)).await?;
    let (Some(mut after), Some(end)) = (due.iter().map(|due| due.walked).min(), due.iter().map(|due| due.above).max()) else {
        return Ok(0);
    };
    let mut used = HashSet::new();
    for _ in 0..PAGES {
        let page = sqlx::query_as(store.sql(include_str!("../../sql/walk_jobs.sql"))).bind(after).bind(end).bind(PAGE_JOBS);
        let (last, lanes): (Option<i64>, Vec<i64>) = bounded(page.fetch_one(&mut *connection)).await?;
        used.extend(lanes);
        after = last.unwrap_or(end);
        if last.is_none() || due.iter().all(|due| used.contains(&due.plain)) {
            break;
        }
    }
    let forget = sqlx::query_scalar(store.sql(include_str!("../../sql/forget_lanes.sql")))
        .bind(due.iter().map(|due| due.lane).collect::<Vec<_>>())
        .bind(due.iter().map(|due| due.leaving.as_str()).collect::<Vec<_>>())
        .bind(due.iter().map(|due| used.contains(&due.plain)).collect::<Vec<_>>())
        .bind(after);
    bounded(forget.fetch_one(connection)).await
}
