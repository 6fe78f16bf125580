-- Takes the capacity for the jobs written to each queue, and notifies idle workers once per queue. Last statement of a bulk enqueue.
-- $1 queues  $2 number of jobs for each queue, 0 if the jobs have already taken it
-- Safe: a separate statement, whose snapshot is newer than the written jobs. A queue at its capacity is an error (QCAPA).
select queue.take_capacity(q.queue, q.jobs, q.jobs), queue.wake(q.queue)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
