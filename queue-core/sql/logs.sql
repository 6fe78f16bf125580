-- Returns the logs of a job's last twenty attempts, in the order of the attempts.
-- $1 id of the job
-- Safe: read-only.
select attempt, at, cut, text
from queue.logs($1)
