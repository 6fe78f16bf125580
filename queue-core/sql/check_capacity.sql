-- Rejects a bulk enqueue (QCAPA) before any row is written, if one of the queues $1 certainly has no capacity for its jobs.
-- $1 queues  $2 minimum number of jobs enqueued into each queue
-- Safe: read-only. The bulk enqueue takes the capacity later, after it has written the jobs.
select queue.check_capacity(q.queue, q.jobs)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
