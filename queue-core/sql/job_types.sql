-- Returns the job types of all jobs ever enqueued, ordered by name.
-- Safe: read-only.
select distinct queue.type_of(l.job_type)
from queue.lane l
order by 1
