-- Returns the progress of a map, for a parent that only waits for the map. The columns are those of gather_outcome.sql, but the number of
-- batches and the number of parts in all batches are always 0.
-- $1 parent  $2 step
select g.total, g.need, g.completed, g.dead, g.cancelled, 0 as chunks, 0::bigint as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
