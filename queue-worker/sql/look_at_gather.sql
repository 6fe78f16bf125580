-- What a gather has come to: its total, null while it is open, what it needs, how many parts completed, are dead and were cancelled, how many chunks
-- it has, and how many parts are in them.
-- $1 parent  $2 the step
select g.total, g.need, g.completed, g.dead, g.cancelled, b.chunks, b.spawned
from queue.gather g
cross join lateral (
  select count(*)::int as chunks, coalesce(sum(pg_catalog.cardinality(b.ids)), 0)::bigint as spawned
  from queue.brood b
  where b.parent = g.parent and b.name = g.name
) b
where g.parent = $1 and g.name = $2
