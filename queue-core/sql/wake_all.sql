-- Reserves capacity for the jobs that a bulk enqueue has written to each queue, and notifies idle workers once per queue. Must be the last
-- statement of the bulk enqueue.
-- $1 queues  $2 number of jobs for each queue, or 0 if the capacity is already reserved
-- Safe: a separate statement, so its snapshot is taken after the jobs were written. Raises QCAPA if a queue is at its capacity.
select queue.take_capacity(q.queue, q.jobs, q.jobs), queue.wake(q.queue)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
