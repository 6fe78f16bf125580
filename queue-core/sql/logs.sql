-- Reads what the attempts of a job have logged, in their order.
-- $1 job
-- Safe: reads.
select attempt, at, cut, text
from queue.logs($1)
