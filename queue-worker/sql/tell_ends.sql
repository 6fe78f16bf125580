-- child, gather_part, node -> told: reports the ends of jobs to the jobs that wait for them, from up to $2 hints at or above the floor $1. Returns
-- the number of consumed hints, the lowest hint, and whether to run again immediately.
-- $1 floor  $2 maximum number of hints
-- Safe: queue.tell_ends reports a job once, under the lock on the job's row, and waits for locks only briefly. Runs with synchronous_commit=off: if
-- a crash loses the commit, the hints still exist.
select t.hints, t.lowest, 0 as moved, t.kept = 0 and t.hints >= $2 as more
from queue.tell_ends($1, $2) t
