-- The last act of an enqueue of many: takes the capacity for as many jobs as were written to each queue, and wakes workers that sleep, once a
-- queue. $1 queues  $2 how many jobs each, 0 if they have taken it
-- Safe: in a statement of its own, whose snapshot is newer than the jobs that were written. A queue at its capacity is an error (QCAPA).
select queue.take_capacity(q.queue, q.jobs, q.jobs), queue.wake(q.queue)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
