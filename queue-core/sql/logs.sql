-- Returns the logs of a job's attempts, in order.
-- $1 job
-- Safe: read-only.
select attempt, at, cut, text
from queue.logs($1)
