-- parked -> ready: moves jobs that have received an awaited signal. Consumes up to $2 hints at or above the floor $1. Returns the number
-- of consumed hints, the position of the lowest hint (null if there is none), the number of moved jobs, and whether to run again
-- immediately.
-- $1 floor  $2 maximum number of hints
-- Safe: queue.wake_parked runs two statements in one transaction, the second with a newer snapshot. It does not wait for locked rows. Runs
-- with synchronous_commit=off: if a crash loses the commit, the hints still exist.
select w.hints, w.lowest, w.moved, w.hints >= $2 and w.moved > 0 as more
from queue.wake_parked($1, $2) w
