//! Claims of what was committed late, where to look at all of it at once would take long: by blocks of the table.

use std::{collections::HashSet, time::Duration};

use queue_core::Store;
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{
    claim::{Request, Rows, narrow},
    left_out::{self, LARGEST},
    rescan::{Extent, Sweep, Swept},
    track::Track,
};
use crate::live::bounded;

/// A claim takes that long only where it walks a hundred thousand dead entries or more; or it plans.
const LONG: Duration = Duration::from_millis(20);

impl Request {
    /// Takes jobs of these lanes that stand below their floors, as far as some blocks hold them; none, if an index leads there sooner.
    pub(super) async fn claim_late(&self, connection: &mut PgConnection, store: Store, sweep: Sweep) -> sqlx::Result<Rows> {
        let extent = self.extent(connection, store, Duration::ZERO).await?;
        if extent.by_index() {
            return Ok(Rows { swept: Some(Swept::none()), ..Rows::default() });
        }
        let (parts, next) = sweep.parts(extent.blocks);
        let (firsts, beyond): (Vec<i64>, Vec<i64>) = parts.into_iter().unzip();
        let statement = sqlx::query(store.sql(include_str!("../../sql/claim_late.sql")))
            .bind::<Uuid>(self.token())
            .bind(self.worker)
            .bind(self.shares.iter().map(|share| share.lane).collect::<Vec<_>>())
            .bind(&self.begins)
            .bind(firsts)
            .bind(narrow(self.most))
            .bind(narrow(LARGEST / self.most.max(1)))
            .bind(beyond)
            .bind(self.shares.iter().map(|share| narrow(share.most)).collect::<Vec<_>>());
        let jobs: Vec<PgRow> = bounded(statement.fetch_all(&mut *connection)).await?;
        let left_out = left_out::read(connection, store, &jobs).await?;
        Ok(Rows { jobs, left_out, swept: Some(Swept::until(next)), ..Rows::default() })
    }

    async fn extent(&self, connection: &mut PgConnection, store: Store, took: Duration) -> sqlx::Result<Extent> {
        let statement = sqlx::query_as(store.sql(include_str!("../../sql/extent.sql"))).bind(self.worker).bind(took.as_secs_f64() * 1000.0);
        bounded(statement.fetch_one(connection)).await
    }

    /// Where the jobs of lanes begin that have nothing: above the places that were taken by some seconds before this claim. It is asked for now and
    /// then if a claim took long though it brought less than it might: there are many dead entries, which nobody is to walk again.
    pub(super) async fn empty_below(
        &self,
        connection: &mut PgConnection,
        store: Store,
        jobs: &[PgRow],
        took: Duration,
    ) -> sqlx::Result<Option<i64>> {
        if took < LONG || jobs.len() >= self.most || !self.may_ask {
            return Ok(None);
        }
        Ok(self.extent(connection, store, took).await?.place)
    }

    /// Notes that lanes begin there, if that is known, which have brought nothing.
    pub(super) fn note_empty(&self, place: Option<i64>, rows: &[PgRow], lanes: &Track) -> sqlx::Result<()> {
        let Some(place) = place else { return Ok(()) };
        let brought = rows.iter().map(|row| row.try_get_unchecked(0)).collect::<sqlx::Result<HashSet<i64>>>()?;
        lanes.floors.begin_at(place, self.shares.iter().map(|share| share.lane).filter(|lane| !brought.contains(lane)));
        Ok(())
    }
}
