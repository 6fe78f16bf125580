//! Brings what became ready in fair lanes into its lines.

use queue_core::Store;
use sqlx::PgConnection;

use super::track::Track;
use crate::live::bounded;

/// So many jobs of a lane at a time.
pub(crate) const MOST: i64 = 500;

/// What was moved.
pub(crate) struct Moved {
    /// The lanes of the jobs, and how many these are.
    pub(crate) lanes: Vec<i64>,
    pub(crate) jobs: usize,
    /// Whether more may be there.
    pub(crate) more: bool,
}

/// Moves jobs of these fair lanes into their lines, from their floors on or from anywhere.
pub(crate) async fn line_up(
    connection: &mut PgConnection,
    store: Store,
    lanes: &Track,
    fair: &[i64],
    from_zero: bool,
) -> sqlx::Result<Moved> {
    let floors: Vec<i64> = fair.iter().map(|lane| if from_zero { 0 } else { lanes.floor(*lane) }).collect();
    let statement = sqlx::query_as(store.sql(include_str!("../../sql/line_up.sql"))).bind(fair).bind(floors).bind(MOST);
    let moved: Vec<(i64, i64, i64)> = bounded(statement.fetch_all(connection)).await?;
    let jobs = moved.iter().map(|(.., jobs)| usize::try_from(*jobs).unwrap_or(0)).sum();
    let (lanes_of, more) = (moved.iter().map(|(lane, ..)| *lane).collect(), moved.iter().any(|(.., jobs)| *jobs >= MOST));
    lanes.floors.raise(moved.into_iter().map(|(lane, lowest, _)| (lane, lowest)));
    Ok(Moved { lanes: lanes_of, jobs, more })
}
