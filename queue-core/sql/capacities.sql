-- The queues that have a capacity, and how many jobs wait in each; see queue.capacities.
-- $1 how many jobs of a queue are counted, or null for all
-- Safe: it only reads.
select c.queue, c.capacity, c.waiting, c.partial
from queue.capacities($1) c
