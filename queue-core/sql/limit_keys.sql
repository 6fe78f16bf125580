-- The keys of a limit by key that hold permits, wait, or have a bound of their own; see queue.limit_keys.
-- $1 limit  $2 how many keys  $3 how many ready jobs are counted in all
-- Safe: it only reads.
select k.line, k.key, k.concurrency, k.used, k.waiting, k.partial, k.next_ms
from queue.limit_keys($1, $2, $3) k
