-- lane -> lane, leaving: up to $2 rows that were met before the retention; returns how many. Whoever enqueues from then on writes a new row.
-- $1 retention in seconds  $2 how many at most
-- Safe: nothing goes yet, and a row that is leaving is a row to everybody but producers. One with a number that was not given out yet was
-- restored from another cluster, and leaves anew.
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
