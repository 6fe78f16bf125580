-- Returns the queues by name: those into which a job was ever enqueued, and those with a capacity.
-- Safe: reads only.
select l.queue
from queue.lane l
union
select c.queue
from queue.capacity c
order by 1
