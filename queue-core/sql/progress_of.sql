-- Returns the progress last reported by the job $1, or no row if the job has reported no progress.
-- $1 id
-- Safe: read-only.
select p.attempt as reported, p.updated_at, p.fraction, p.stage, p.counts::text as counts
from queue.progress p
where p.id = $1
