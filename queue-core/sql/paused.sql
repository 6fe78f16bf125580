-- What is paused, the longest first; see queue.pauses.
-- $1 how many ready jobs are counted of each
-- Safe: it only reads.
select p.id, p.queue, p.job_type, p.reason, p.paused_at, p.paused_by, p.ready, p.partial, p.awaits
from queue.pauses($1) p
