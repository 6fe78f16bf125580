-- lease, job and what there is of a job, looked at: those of the leases $1 and of the jobs $2 that another transaction has locked, and whose session
-- that is, if one alone has it.
-- $1 tokens  $2 ids
-- Safe: queue.locked_rows never waits, and keeps no lock. Asked only after a statement had to wait for one of them for too long.
select l.relation, l.token, l.job, l.pid, l.role, l.application
from queue.locked_rows($1, $2) l
