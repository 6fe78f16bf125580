//! Claims of a block scan. A block scan finds jobs that were already below their lane's floor when they were committed. It reads the table
//! `ready` in parts, and each claim reads one part. Block scans are used while complete index scans are slow.

use std::{collections::HashSet, time::Duration};

use queue_core::Store;
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    claim::{ClaimRequest, ClaimRows, narrow},
    lane_state::LaneState,
    late_scan::{BlockCursor, BlockScan, TableExtent},
    omitted::{self, MAX_BYTES},
};
use crate::live::bounded;

/// Duration above which a claim counts as slow. A claim takes this long only if the server must plan its statement, or if the statement
/// reads about a hundred thousand dead index entries.
const SLOW_CLAIM: Duration = Duration::from_millis(20);

impl ClaimRequest {
    /// Claims jobs below the floors, in the table blocks that `cursor` selects. Claims no jobs if an index scan is faster.
    pub(super) async fn claim_late(&self, connection: &mut PgConnection, store: Store, cursor: BlockCursor) -> sqlx::Result<ClaimRows> {
        let extent = self.extent(connection, store, Duration::ZERO).await?;
        if extent.use_index() {
            return Ok(ClaimRows { block_scan: Some(BlockScan::skipped()), ..ClaimRows::default() });
        }
        let (parts, next) = cursor.parts(extent.blocks);
        let (firsts, beyond): (Vec<i64>, Vec<i64>) = parts.into_iter().unzip();
        let statement = sqlx::query(store.sql(include_str!("../../sql/claim_late.sql")))
            .bind::<Uuid>(self.token())
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.begins)
            .bind(firsts)
            .bind(narrow(self.most))
            .bind(narrow(MAX_BYTES / self.most.max(1)))
            .bind(beyond)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>());
        let jobs: Vec<PgRow> = bounded(statement.fetch_all(&mut *connection)).await?;
        let omitted = omitted::read(connection, store, &jobs).await?;
        Ok(ClaimRows { jobs, omitted, block_scan: Some(BlockScan::up_to(next)), ..ClaimRows::default() })
    }

    async fn extent(&self, connection: &mut PgConnection, store: Store, took: Duration) -> sqlx::Result<TableExtent> {
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/extent.sql"))).bind(self.worker).bind(took.as_secs_f64() * 1000.0);
        bounded(statement.fetch_one(connection)).await
    }

    /// Queries a new floor for empty lanes after a slow claim that returned fewer jobs than requested. The floor is lower than any queue
    /// position assigned in the ten seconds before the claim. Later claims skip the dead entries below the floor. Returns `None` after
    /// other claims, if a floor was queried recently, or if the worker's heartbeat has expired.
    pub(super) async fn empty_floor(
        &self,
        connection: &mut PgConnection,
        store: Store,
        jobs: &[PgRow],
        took: Duration,
    ) -> sqlx::Result<Option<i64>> {
        if took < SLOW_CLAIM || jobs.len() >= self.most || !self.may_query_floor {
            return Ok(None);
        }
        Ok(self.extent(connection, store, took).await?.place)
    }

    /// Raises the floors of lanes that returned no job, if a floor was queried.
    pub(super) fn record_empty_floor(&self, place: Option<i64>, rows: &[PgRow], lanes: &LaneState) -> sqlx::Result<()> {
        let Some(place) = place else { return Ok(()) };
        let with_jobs = rows.iter().map(|row| row.try_get_unchecked(0)).collect::<sqlx::Result<HashSet<i64>>>()?;
        lanes.floors.begin_at(place, self.shares.iter().map(|share| share.lane).filter(|lane| !with_jobs.contains(lane)));
        Ok(())
    }
}
