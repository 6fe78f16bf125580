-- Limits, and keys of limits by key, without room, whose first ready job has waited for long; see queue.full_limits.
-- $1 for how many ms  $2 how many at most
-- Safe: it only reads.
select f.name, f.line, f.key, f.used, f.concurrency, f.waiting, f.partial, f.first_ms
from queue.full_limits($1, $2) f
