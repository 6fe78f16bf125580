-- The limits that have no room for a ready job now; see queue.waits_for.
-- $1 job
-- Safe: it only reads.
select w.name, w.keyed, w.line, w.key, w.used, w.concurrency, w.wait_ms, w.awaits
from queue.waits_for($1) w
