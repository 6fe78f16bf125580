//! Forgetting lanes that nobody used for as long as history is kept, in steps that cost producers nothing.
//!
//! A lane's row leaves: producers see it no more, and write a new one if they use the lane. Once all who saw it before have ended, it goes if
//! there is such a new row, or no job of its lane. A minute's step each: nobody waits for it, and any worker goes on from where another ended.

use std::{collections::HashSet, time::Duration};

use queue_core::Store;
use sqlx::{FromRow, PgConnection};

use crate::live::bounded;

/// The most rows of one statement.
const MOST: i64 = 1000;

/// The most jobs of one look, and how many looks a minute has.
const JOBS: i64 = 5000;
const LOOKS: usize = 100;

/// By then the days have gone that were made before a lane began to leave, so that few jobs are left to be looked through.
const DAY: Duration = Duration::from_hours(24);

/// A row that may go.
#[derive(FromRow)]
struct Due {
    lane: i64,
    leaving: String,
    /// The lane that names its jobs: of a solo one its twin.
    plain: i64,
    walked: i64,
    above: i64,
}

/// A minute's steps; tells how many lanes went.
pub(super) async fn forget_lanes(connection: &mut PgConnection, store: Store, retention: Duration) -> sqlx::Result<()> {
    // Those that began to leave a minute ago and are not seen any more take their next step first.
    pass(&mut *connection, store).await?;
    let replaced = sqlx::query_scalar(store.sql(include_str!("../../sql/replaced_lanes.sql"))).bind(MOST);
    let _: i64 = bounded(replaced.fetch_one(&mut *connection)).await?;
    let gone = walk(&mut *connection, store, retention + DAY).await?;
    if gone > 0 {
        tracing::info!(lanes = gone, "forgot lanes that nobody used for as long as history is kept");
    }
    let leave = sqlx::query_scalar(store.sql(include_str!("../../sql/leave_lanes.sql"))).bind(retention.as_secs_f64()).bind(MOST);
    let _: i64 = bounded(leave.fetch_one(&mut *connection)).await?;
    Ok(())
}

/// Whoever may have seen a row before it was leaving has ended, or has a lower number than it has from now on.
async fn pass(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let unseen = sqlx::query_scalar(store.sql(include_str!("../../sql/unseen_lanes.sql")));
    let unseen: Vec<String> = bounded(unseen.fetch_all(&mut *connection)).await?;
    let pass = sqlx::query(store.sql(include_str!("../../sql/pass_lanes.sql"))).bind(unseen).bind(MOST);
    bounded(pass.execute(connection)).await.map(drop)
}

/// Looks through the jobs for those of lanes that may go; returns how many lanes went.
async fn walk(connection: &mut PgConnection, store: Store, unused: Duration) -> sqlx::Result<i64> {
    let due = sqlx::query_as(store.sql(include_str!("../../sql/due_lanes.sql"))).bind(unused.as_secs_f64()).bind(MOST);
    let due: Vec<Due> = bounded(due.fetch_all(&mut *connection)).await?;
    let (Some(mut after), Some(end)) = (due.iter().map(|due| due.walked).min(), due.iter().map(|due| due.above).max()) else {
        return Ok(0);
    };
    let mut used = HashSet::new();
    for _ in 0..LOOKS {
        let page = sqlx::query_as(store.sql(include_str!("../../sql/walk_jobs.sql"))).bind(after).bind(end).bind(JOBS);
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
