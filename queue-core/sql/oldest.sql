-- Returns, for each queue with ready jobs, since when the first of them has been ready; see queue.oldest.
-- $1 maximum number of queues, those with the longest waits; null for all
-- Safe: reads only.
select o.queue, o.since, o.waited_ms, o.partial
from queue.oldest($1) o
