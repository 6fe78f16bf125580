-- Returns the queues with a capacity, each with its number of waiting jobs. See queue.capacities.
-- $1 maximum number of jobs counted per queue, or null for no limit
-- Safe: read-only.
select c.queue, c.capacity, c.waiting, c.partial
from queue.capacities($1) c
