-- What a gather has come to: its total, null while it is open, what it needs, how many parts completed, are dead and were cancelled, how many chunks
-- it has, and how many parts are in them.
-- $1 parent  $2 the step
select g.total, g.need, g.completed, g.dead, g.cancelled,
  (select count(*)::int from queue.brood b where b.parent = $1 and b.name = $2) as chunks,
  (select coalesce(sum(pg_catalog.cardinality(b.ids)), 0)::bigint from queue.brood b where b.parent = $1 and b.name = $2) as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
