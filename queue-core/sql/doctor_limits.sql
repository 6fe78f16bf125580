-- Finds limits that have no free permit and whose first ready job has waited too long. For a per-key limit, returns the keys without a
-- free permit. See queue.full_limits.
-- $1 minimum wait of the first ready job in ms  $2 maximum number of rows
-- Safe: read-only.
select f.name, f.fair_id, f.key, f.used, f.concurrency, f.waiting, f.partial, f.first_ms
from queue.full_limits($1, $2) f
