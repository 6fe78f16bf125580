-- parked -> ready: jobs that have a signal that they wait for, among those of up to $2 hints from the place $1 on; returns how many hints there
-- were, without those that are left, the lowest of them, how many jobs were moved, and whether to
-- look again at once.
-- $1 floor  $2 how many hints at most
-- Safe: queue.wake_parked is two statements of one transaction, the second with a newer snapshot; it waits for nobody. Runs with
-- synchronous_commit=off: lost, the hints are there again.
select w.hints, w.lowest, w.moved, w.hints >= $2 and w.moved > 0 as more
from queue.wake_parked($1, $2) w
