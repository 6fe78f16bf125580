-- The queues that there are, by name: those into which a job was enqueued, and those that have a capacity.
-- Safe: it only reads.
select l.queue
from queue.lane l
union
select c.queue
from queue.capacity c
order by 1
