-- end_hint -> nothing: reports ended jobs to the jobs, maps and flows that wait for them. Consumes up to $2 hints at or above the floor
-- $1. Returns the number of consumed hints, the position of the lowest hint (null if there is none), and whether to run again
-- immediately.
-- $1 floor  $2 maximum number of hints
-- Safe: queue.consume_end_hints reports a job once, under the job's row lock, and waits for locks only briefly. Runs with
-- synchronous_commit=off: if a crash loses the commit, the hints still exist.
select t.hints, t.lowest, 0 as moved, t.kept = 0 and t.hints >= $2 as more
from queue.consume_end_hints($1, $2) t
