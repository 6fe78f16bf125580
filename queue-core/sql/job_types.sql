-- Returns the job types of all lanes, ordered by name. A job type's first enqueue creates a lane, and housekeeping removes unused lanes.
-- Safe: read-only.
select distinct queue.type_of(l.job_type)
from queue.lane l
order by 1
