-- The queues that have a capacity, and how many jobs wait in each.
-- Safe: it only reads.
select c.queue, c.capacity, c.waiting
from queue.capacities() c
