-- lane -> lane (leaving): marks for deletion up to $2 lane rows that were inserted more than $1 seconds ago. Returns the number of marked
-- rows. Later enqueues into these lanes insert a new row.
-- $1 retention in seconds  $2 maximum number of rows
-- Safe: nothing is deleted yet, and only producers ignore a marked row. A row whose transaction id is not assigned yet was restored from
-- another cluster, and is marked again.
with chosen as materialized (
  select l.ctid as at
  from queue.lane l
  where l.leaving is null and l.since < now() - $1 * interval '1 second'
    or coalesce(l.passed, l.leaving) >= pg_snapshot_xmax(pg_current_snapshot())
  limit $2
  for update skip locked
), begun as (
  update queue.lane l
  set has_capacity = null, leaving = pg_current_xact_id(), since = now(), passed = null, above = null, walked = 0
  where l.ctid = any (array(select c.at from chosen c))
  returning 1
)
select count(*) from begun
