-- Returns the queues, ordered by name. These are the queues into which a job was ever enqueued, and those with a capacity.
-- Safe: read-only.
select l.queue
from queue.lane l
union
select c.queue
from queue.capacity c
order by 1
