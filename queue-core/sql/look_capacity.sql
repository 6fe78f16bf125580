-- Refuses an enqueue of many (QCAPA) before anything is written, if one of the queues $1 is surely too full for $2 jobs.
-- $1 queues  $2 how many jobs each, at least
-- Safe: it only looks. What it lets pass takes the capacity after it is written.
select queue.look_capacity(q.queue, q.jobs)
from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])) q (queue, jobs)
