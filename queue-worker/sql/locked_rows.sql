-- Returns the rows of the leases $1 and of the jobs $2 that another transaction has locked, in lease, job and the tables that belong to a job. Also
-- returns the session that holds the lock, if only one session holds it.
-- $1 tokens  $2 ids
-- Safe: queue.locked_rows never waits and keeps no lock. Runs only after a statement has timed out waiting for such a row.
select l.relation, l.token, l.job, l.pid, l.role, l.application
from queue.locked_rows($1, $2) l
