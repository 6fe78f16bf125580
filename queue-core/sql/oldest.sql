-- For each queue with ready jobs: since when the first of them has been ready; see queue.oldest.
-- Safe: it only reads.
select o.queue, o.since, o.waited_ms, o.partial
from queue.oldest() o
