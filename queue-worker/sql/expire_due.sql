-- ready | scheduled | blocked -> done (expired): reads up to $2 due rows of the table expiry, and expires their jobs unless the jobs have
-- started. Returns the number of rows, their earliest time (null if there are none), the expired jobs, and the jobs that could not be
-- expired because a table rejected their rows.
-- $1 lower bound of the rows' times, or null for no bound  $2 maximum number of rows
-- Safe: queue.expire_due skips locked rows, waits at most 100 ms for any other lock, and ends only jobs that it has locked. Runs with
-- synchronous_commit=off: if a crash loses the commit, the rows of expiry still exist.
select e.hints, e.lowest, e.expired, e.refused
from queue.expire_due(coalesce($1::timestamptz, '-infinity'), $2) e
