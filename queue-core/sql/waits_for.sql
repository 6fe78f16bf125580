-- Returns the limits that have no permit for a ready job now. See queue.waits_for.
-- $1 job
-- Safe: read-only.
select w.name, w.keyed, w.line, w.key, w.used, w.concurrency, w.wait_ms, w.awaits
from queue.waits_for($1) w
