-- Rows of lease, of job and of the tables that belong to a job, among the leases $1 and the jobs $2, which another transaction has locked.
-- Returns the session that holds the lock, if it is the only one.
-- $1 tokens  $2 ids
-- Safe: queue.locked_rows never waits and keeps no lock. Runs only after a statement has timed out waiting for such a row.
select l.relation, l.token, l.job, l.pid, l.role, l.application
from queue.locked_rows($1, $2) l
