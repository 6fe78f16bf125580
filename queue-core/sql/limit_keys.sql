-- Returns the keys of a limit by key that hold permits, have waiting jobs, or have an individual concurrency. See queue.limit_keys.
-- $1 limit  $2 maximum number of keys  $3 maximum number of ready jobs counted in total
-- Safe: read-only.
select k.line, k.key, k.concurrency, k.used, k.waiting, k.partial, k.next_ms
from queue.limit_keys($1, $2, $3) k
