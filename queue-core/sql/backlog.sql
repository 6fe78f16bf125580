-- The figures of one queue; see queue.backlog.
-- $1 queue  $2 how many ready jobs are counted
-- Safe: it only reads.
select b.ready, b.partial, b.since, b.waited_ms
from queue.backlog($1, $2) b
