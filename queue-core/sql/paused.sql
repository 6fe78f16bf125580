-- Returns the pauses, oldest first. See queue.pauses.
-- $1 maximum number of ready jobs counted per pause
-- Safe: read-only.
select p.id, p.queue, p.job_type, p.reason, p.paused_at, p.paused_by, p.ready, p.partial, p.awaits
from queue.pauses($1) p
