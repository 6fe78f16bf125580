-- As look_at_gather, without its chunks: for whoever waits.
-- $1 parent  $2 the step
select g.total, g.need, g.completed, g.dead, g.cancelled, 0 as chunks, 0::bigint as spawned
from queue.gather g
where g.parent = $1 and g.name = $2
