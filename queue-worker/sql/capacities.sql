-- The bounded queues with their capacities, and how many jobs wait in each.
select c.queue, c.capacity, queue.depth(c.queue) as waiting
from queue.capacity c
order by c.queue
