-- The job types of which a job was ever enqueued, by name.
-- Safe: it only reads.
select distinct queue.type_of(l.job_type)
from queue.lane l
order by 1
