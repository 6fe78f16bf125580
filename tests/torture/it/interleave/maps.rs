//! Statements on maps: adding a chunk, ending a part, counting hints, and closing, recounting, deleting or cancelling a map. Also checks
//! the invariants of maps.

use sqlx::{PgConnection, Row as _};
use tests::{holders, operate};

use super::{fixture::Fixture, side_statement::SideStatement};

/// Executes a statement on the map of the running job. Returns the number of affected jobs or rows.
pub(super) async fn run(statement: SideStatement, on: &mut PgConnection, fixture: &Fixture) -> sqlx::Result<i64> {
    let (token, parent) = (fixture.lease.token, fixture.lease.jobs[0].id);
    let count = |some: usize| i64::try_from(some).unwrap_or(i64::MAX);
    Ok(match statement {
        SideStatement::AddChunk => {
            sqlx::raw_sql("savepoint chunk").execute(&mut *on).await?;
            if holders::chunk_within(on, token, parent, "map").await? == Some(true) {
                return Ok(2);
            }
            sqlx::raw_sql("rollback to savepoint chunk").execute(on).await?;
            0
        }
        SideStatement::CloseGather => {
            const PARTS: &str = "select coalesce(sum(cardinality(ids)), 0)::bigint from queue.map_batch where parent = $1 and name = 'map'";
            let total = sqlx::query_scalar(PARTS).bind(parent).fetch_one(&mut *on).await?;
            i64::from(holders::close(on, token, parent, "map", total).await? == Some(true))
        }
        SideStatement::EndPart => count(operate::cancel(on, &[fixture.jobs[10]]).await?.len()),
        SideStatement::CountGathers => {
            let counted = sqlx::query(include_str!("../../../../queue-worker/sql/count_gathers.sql")).bind(0_i64).bind(1000);
            i64::from(counted.fetch_one(on).await?.get::<i32, _>("hints"))
        }
        SideStatement::Recount => {
            let recount = sqlx::query_scalar::<_, Option<i64>>("select queue.recount_gather($1, 'map')").bind(parent);
            i64::from(recount.fetch_one(on).await?.is_some())
        }
        SideStatement::ForgetGathers => {
            sqlx::query("select queue.forget_gathers(array[$1])").bind(parent).execute(on).await?;
            1
        }
        SideStatement::PruneGathers => {
            let prune = sqlx::query_scalar::<_, Option<i64>>(include_str!("../../../../queue-worker/sql/prune_gathers.sql"));
            i64::from(prune.bind(0_i64).bind(1000).fetch_one(on).await?.is_some())
        }
        _ => count(operate::cancel_running(on, &[parent]).await?.len()),
    })
}

/// Query for violations of the invariants of maps. `need` is the number of unfinished parts, plus the uncounted ends in hints, plus one
/// while the map is open. A waiting part is a parked part that its map holds. A map with free places for running parts has no waiting
/// part, unless a hint schedules another check. Each part belongs to a chunk of its map.
const VIOLATIONS: &str = "
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
where not exists (select from queue.map_batch b where b.parent = p.parent and b.name = p.name and p.id = any (b.ids))
order by 1";

/// Returns the violations of the invariants of maps.
pub(super) async fn violations(on: &mut PgConnection) -> sqlx::Result<Vec<(i64, String)>> {
    sqlx::query_as(VIOLATIONS).fetch_all(on).await
}
