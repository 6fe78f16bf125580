-- Returns those keys of a per-key limit that hold permits, have waiting jobs, or have a concurrency of their own. See queue.limit_keys.
-- $1 limit  $2 maximum number of keys  $3 maximum number of ready jobs counted in total
-- Safe: read-only.
select k.fair_id, k.key, k.concurrency, k.used, k.waiting, k.partial, k.next_ms
from queue.limit_keys($1, $2, $3) k
