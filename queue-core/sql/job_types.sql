-- Returns the job types of all jobs ever enqueued, by name.
-- Safe: reads only.
select distinct queue.type_of(l.job_type)
from queue.lane l
order by 1
