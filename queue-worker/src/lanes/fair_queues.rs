//! Moves ready jobs of fair lanes into fair queues.

use queue_core::Store;
use sqlx::PgConnection;

use super::lane_state::LaneState;
use crate::live::bounded;

/// Maximum number of jobs per lane that one call of [`move_to_fair_lanes`] moves.
pub(crate) const MOST: i64 = 500;

/// Result of moving jobs into fair queues.
pub(crate) struct FairQueueMove {
    /// Lanes whose jobs were moved.
    pub(crate) lanes: Vec<i64>,
    pub(crate) jobs: usize,
    /// Whether there may be more jobs to move.
    pub(crate) more: bool,
}

/// Moves ready jobs of the fair lanes `fair` into fair queues. Starts at the lanes' floors, or at queue position zero if `from_zero` is
/// set.
pub(crate) async fn move_to_fair_lanes(
    connection: &mut PgConnection,
    store: Store,
    lanes: &LaneState,
    fair: &[i64],
    from_zero: bool,
) -> sqlx::Result<FairQueueMove> {
    let floors: Vec<i64> = fair.iter().map(|lane| if from_zero { 0 } else { lanes.floor(*lane) }).collect();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/move_to_fair_lanes.sql"))).bind(fair).bind(floors).bind(MOST);
    let moved: Vec<(i64, i64, i64)> = bounded(statement.fetch_all(connection)).await?;
    let jobs = moved.iter().map(|(.., jobs)| usize::try_from(*jobs).unwrap_or(0)).sum();
    let (lanes_of, more) = (moved.iter().map(|(lane, ..)| *lane).collect(), moved.iter().any(|(.., jobs)| *jobs >= MOST));
    lanes.floors.set(moved.into_iter().map(|(lane, lowest, _)| (lane, lowest)));
    Ok(FairQueueMove { lanes: lanes_of, jobs, more })
}
