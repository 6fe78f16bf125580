-- Counts jobs by queue, job type and state. See queue.counts.
-- $1 maximum number of entries counted per state, or null for no limit
-- $2 maximum number of pairs of queue and job type, or null for no limit
-- Safe: read-only.
select c.queue, c.job_type, c.state, c.jobs, c.partial
from queue.counts($1, $2) c
