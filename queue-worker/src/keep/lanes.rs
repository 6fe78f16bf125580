//! Deletes lanes that have been unused for as long as history is kept, in steps that never block producers.
//!
//! First, a lane's row is marked as leaving. Producers no longer see this row, and insert a new one if they use the lane. The old row is
//! deleted once all transactions that may have seen it have ended, if there is a new row or if the lane has no jobs. Each round performs
//! one step, and any worker can continue where another one stopped.

use std::{collections::HashSet, time::Duration};

use queue_core::Store;
use sqlx::{FromRow, PgConnection};

use crate::live::bounded;

/// Maximum number of rows per statement.
const MAX_ROWS: i64 = 1000;

/// Maximum number of jobs per page, and maximum number of pages per round.
const PAGE_JOBS: i64 = 5000;
const PAGES: usize = 100;

/// Time that a lane stays unused beyond the retention before it is deleted. By then, partitions older than the mark have been dropped, so
/// that few jobs remain to be scanned.
const DAY: Duration = Duration::from_hours(24);

/// Leaving lane that may be deleted.
#[derive(FromRow)]
struct LeavingLane {
    lane: i64,
    leaving: String,
    /// Lane under which jobs are stored. For a lane of quarantined jobs, this is its plain twin.
    plain: i64,
    walked: i64,
    above: i64,
}

/// Runs one round of the deletion.
pub(super) async fn delete_lanes(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    // The next step comes first for lanes that were marked in an earlier round and that no running transaction can see.
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

/// Advances the lanes that every running transaction sees as leaving.
async fn advance_marks(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let unseen = sqlx::query_scalar(store.sql(include_str!("../../sql/unseen_lanes.sql")));
    let unseen: Vec<String> = bounded(unseen.fetch_all(&mut *connection)).await?;
    let pass = sqlx::query(store.sql(include_str!("../../sql/pass_lanes.sql"))).bind(unseen).bind(MAX_ROWS);
    bounded(pass.execute(connection)).await.map(drop)
}

/// Scans jobs for uses of the lanes to be deleted, and deletes the unused lanes. Returns the number of deleted lanes.
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
