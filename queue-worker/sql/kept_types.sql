-- Returns the job types with a separate retention, and for each type whether the retention is shorter than the store's retention of $1
-- seconds.
-- $1 retention of the store in seconds
select k.job_type, k.history < $1 * interval '1 second'
from queue.retention k
