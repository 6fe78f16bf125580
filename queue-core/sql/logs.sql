-- Returns the logs of a job's attempts, in order.
-- $1 job
-- Safe: reads only.
select attempt, at, cut, text
from queue.logs($1)
