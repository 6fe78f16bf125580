-- Rejects a bulk enqueue (QCAPA) before any row is written, if a queue in $1 has no capacity for the number of jobs in $2.
-- $1 queues  $2 minimum number of jobs enqueued into each queue
-- Safe: read-only. The bulk enqueue takes the capacity later, after it has written the jobs.
select queue.check_capacity(q.queue, q.jobs)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
