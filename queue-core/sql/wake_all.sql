-- Wakes workers that sleep, once a queue. $1 queues
-- Safe: the last act of an enqueue, in a statement of its own: its snapshot is newer than the jobs that were written.
select queue.wake(q.queue) from pg_catalog.unnest($1::pg_catalog.text[]) q (queue)
