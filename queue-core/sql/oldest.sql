-- For each queue with ready jobs: since when the first of them has been ready; see queue.oldest.
-- $1 so many queues, those that wait longest; null for all
-- Safe: it only reads.
select o.queue, o.since, o.waited_ms, o.partial
from queue.oldest($1) o
