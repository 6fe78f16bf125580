-- Returns the limits that prevent a ready job from starting now. See queue.waits_for.
-- $1 id of the job
-- Safe: read-only.
select w.name, w.keyed, w.fair_id, w.key, w.used, w.concurrency, w.wait_ms, w.awaits
from queue.waits_for($1) w
