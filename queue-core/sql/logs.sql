-- Returns the logs of a job's last twenty attempts that have a log, oldest attempt first. See queue.logs.
-- $1 id of the job
-- Safe: read-only.
select attempt, at, cut, text
from queue.logs($1)
