-- Returns the progress of a map without the number of its batches, for a parent that is only waiting. See look_at_gather.sql.
-- $1 parent  $2 step
select g.total, g.need, g.completed, g.dead, g.cancelled, 0 as chunks, 0::bigint as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
