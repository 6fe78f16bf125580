//! Maps in the middle of others: a chunk is spawned, a part ends, hints are counted, a gather is counted anew, forgotten or cancelled. And what must
//! hold of gathers whatever has met them.

use sqlx::{PgConnection, Row as _};
use tests::{holders, operate};

use super::{beside::Beside, fixture::Fixture};

/// Does it, on the map of the job that runs; returns of how many jobs or rows.
pub(super) async fn run(act: Beside, on: &mut PgConnection, fixture: &Fixture) -> sqlx::Result<i64> {
    let (token, parent) = (fixture.lease.token, fixture.lease.jobs[0].id);
    let count = |some: usize| i64::try_from(some).unwrap_or(i64::MAX);
    Ok(match act {
        Beside::AddChunk => {
            sqlx::raw_sql("savepoint chunk").execute(&mut *on).await?;
            if holders::chunk_within(on, token, parent, "map").await? == Some(true) {
                return Ok(2);
            }
            sqlx::raw_sql("rollback to savepoint chunk").execute(on).await?;
            0
        }
        Beside::CloseGather => {
            const PARTS: &str = "select coalesce(sum(cardinality(ids)), 0)::bigint from queue.brood where parent = $1 and name = 'map'";
            let total = sqlx::query_scalar(PARTS).bind(parent).fetch_one(&mut *on).await?;
            i64::from(holders::close(on, token, parent, "map", total).await? == Some(true))
        }
        Beside::EndPart => count(operate::cancel(on, &[fixture.jobs[10]]).await?.len()),
        Beside::CountGathers => {
            let counted = sqlx::query(include_str!("../../../../queue-worker/sql/count_gathers.sql")).bind(0_i64).bind(1000);
            i64::from(counted.fetch_one(on).await?.get::<i32, _>("hints"))
        }
        Beside::Recount => {
            let recount = sqlx::query_scalar::<_, Option<i64>>("select queue.recount_gather($1, 'map')").bind(parent);
            i64::from(recount.fetch_one(on).await?.is_some())
        }
        Beside::ForgetGathers => {
            sqlx::query("select queue.forget_gathers(array[$1])").bind(parent).execute(on).await?;
            1
        }
        Beside::PruneGathers => {
            let prune = sqlx::query_scalar::<_, Option<i64>>(include_str!("../../../../queue-worker/sql/prune_gathers.sql"));
            i64::from(prune.bind(0_i64).bind(1000).fetch_one(on).await?.is_some())
        }
        _ => count(operate::cancel_running(on, &[parent]).await?.len()),
    })
}

/// What a gather needs is one for being open, one for each part, and what is said in hints. One that has room has no part that waits for its turn,
/// unless a hint says that it be looked at again. A part that waits for its turn is parked, and belongs to a gather; one whose gather is forgotten goes.
const WRONG: &str = "
select g.parent, g.name || ' needs ' || g.need as why
from queue.gather g
where g.need <> (g.total is null)::int
  + (select count(*) from queue.gather_part p where p.parent = g.parent and p.name = g.name and p.born = g.born)
  + (select coalesce(sum(h.completed + h.dead + h.cancelled), 0) from queue.gather_hint h where h.parent = g.parent and h.name = g.name and h.born = g.born)
union all
select g.parent, g.name || ' has room, and parts that wait'
from queue.gather g
where g.room > 0 and not exists (select from queue.gather_hint h where h.parent = g.parent and h.born = g.born)
  and exists (
    select from queue.gather_part p join queue.parked k on k.id = p.id where p.parent = g.parent and p.born = g.born and p.held
  )
union all
select p.parent, 'more parts of ' || p.name || ' are spawned than chunks say'
from queue.gather_part p
join queue.gather g on g.parent = p.parent and g.born = p.born
where not exists (select from queue.brood b where b.parent = p.parent and b.name = p.name and p.id = any (b.ids))
order by 1";

/// What is wrong with them: nothing, it is hoped.
pub(super) async fn wrong(on: &mut PgConnection) -> sqlx::Result<Vec<(i64, String)>> {
    sqlx::query_as(WRONG).fetch_all(on).await
}
