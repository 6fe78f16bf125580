-- For each queue with ready jobs: since when the first of them has been ready.
-- Safe: it only reads.
select o.queue, o.since, o.waited_ms
from queue.oldest() o
