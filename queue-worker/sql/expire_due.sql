-- ready | scheduled | blocked -> done, expired: the jobs of up to $2 rows of expiry that are due, from the time $1 on, unless they have begun;
-- returns how many rows there were, the first of their times, the jobs that are over, and those that the tables refuse.
-- $1 floor, or null for all  $2 how many rows at most
-- Safe: queue.expire_due waits for nobody, and ends only what it has locked. Runs with synchronous_commit=off: lost, the rows are there again.
select e.hints, e.lowest, e.expired, e.refused
from queue.expire_due(coalesce($1::timestamptz, '-infinity'), $2) e
