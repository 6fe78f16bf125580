-- Returns the queues that have a lane or a capacity, ordered by name. A queue's first enqueue creates a lane, and housekeeping removes
-- unused lanes.
-- Safe: read-only.
select l.queue
from queue.lane l
union
select c.queue
from queue.capacity c
order by 1
