-- Returns the causes that keep a job from running, most likely first. Also returns the job's attributes and the current time. See
-- queue.why.
-- $1 id
-- Safe: read-only, and waits at most 200 ms for a lock (lock_timeout of queue.why).
select w.kind, w.message, w.facts, w.job, pg_catalog.clock_timestamp() as at
from queue.why($1) with ordinality w (kind, message, facts, job, nth)
order by w.nth
