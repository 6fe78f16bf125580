-- The last act of an enqueue of many: takes the room for as many jobs as were written to each queue, and wakes workers that sleep, once a
-- queue. $1 queues  $2 how many jobs each, 0 if their room is taken
-- Safe: in a statement of its own, whose snapshot is newer than the jobs that were written. Without room for all of them it is an error.
select queue.take_room(q.queue, q.jobs), queue.wake(q.queue)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
