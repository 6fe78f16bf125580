-- Returns the progress of a map: the total number of parts (null while the map is open), the number of unfinished parts, and the numbers
-- of completed, dead and cancelled parts. An open map counts as one more unfinished part. Also returns the number of batches, and the
-- number of parts in all batches.
-- $1 parent  $2 step
select g.total, g.need, g.completed, g.dead, g.cancelled,
  (select count(*)::int from queue.map_batch b where b.parent = $1 and b.name = $2) as chunks,
  (select coalesce(sum(pg_catalog.cardinality(b.ids)), 0)::bigint from queue.map_batch b where b.parent = $1 and b.name = $2) as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
