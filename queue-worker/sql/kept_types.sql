-- Returns the job types with a separate retention, and whether each of these retentions is shorter than the store's retention of $1
-- seconds.
-- $1 retention of the store in seconds
select k.job_type, k.history < $1 * interval '1 second'
from queue.retention k
