-- gather_hint -> nothing: counts the finished parts of maps. Consumes up to $2 hints at or above the floor $1. Returns the number of
-- consumed hints, and the position of the lowest hint (null if there is none). Also returns the number of waiting parts that were made
-- ready, and whether to run again immediately.
-- $1 floor  $2 maximum number of hints
-- Safe: queue.count_gathers runs several statements in one transaction, each with a newer snapshot, and never waits for a lock. Runs with
-- synchronous_commit=off: if a crash loses the commit, the hints still exist.
select c.hints, c.lowest, c.moved, c.hints >= $2 or c.moved >= $2 as more
from queue.count_gathers($1, $2) c
