-- ready | scheduled | blocked -> done, expired: expires the jobs of up to $2 due rows of expiry, starting at the time $1, unless they have started.
-- Returns the number of rows, their earliest time, the expired jobs, and the jobs for which the tables reject the writes.
-- $1 floor, or null for all  $2 maximum number of rows
-- Safe: queue.expire_due never waits for a lock, and ends only jobs that it has locked. Runs with synchronous_commit=off: if a crash loses the
-- commit, the rows still exist.
select e.hints, e.lowest, e.expired, e.refused
from queue.expire_due(coalesce($1::timestamptz, '-infinity'), $2) e
