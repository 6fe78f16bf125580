-- Returns the number of ready jobs in a queue, and the waiting time of the first ready job. See queue.backlog.
-- $1 queue  $2 maximum number of ready jobs counted
-- Safe: read-only.
select b.ready, b.partial, b.since, b.waited_ms
from queue.backlog($1, $2) b
