-- Returns the rows of the leases $1 and of the jobs $2 that another transaction has locked. Reads lease, job and the other tables that
-- contain rows of a job. If exactly one session holds a row's lock, also returns the session.
-- $1 tokens  $2 ids
-- Safe: queue.locked_rows waits for no row lock. The locks that it takes end with this statement's transaction. Runs only after a
-- statement has timed out waiting for a lock.
select l.relation, l.token, l.job, l.pid, l.role, l.application
from queue.locked_rows($1, $2) l
