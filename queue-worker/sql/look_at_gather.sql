-- Returns the progress of a map: the total number of parts (null while the map is open), and how many parts it needs, completed, are dead and were
-- cancelled. Also returns the number of batches, and the number of parts in them.
-- $1 parent  $2 step
select g.total, g.need, g.completed, g.dead, g.cancelled,
  (select count(*)::int from queue.brood b where b.parent = $1 and b.name = $2) as chunks,
  (select coalesce(sum(pg_catalog.cardinality(b.ids)), 0)::bigint from queue.brood b where b.parent = $1 and b.name = $2) as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
