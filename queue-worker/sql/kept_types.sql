-- Returns the job types with a retention of their own, and whether it is shorter than the store's retention of $1 seconds.
select k.job_type, k.history < $1 * interval '1 second'
from queue.retention k
