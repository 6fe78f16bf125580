-- parked -> ready | done, cancelled | dead: nodes that wait for jobs of up to $2 hints from the place $1 on; returns how many hints there
-- were, without those that are left, the lowest of them, how many nodes were moved, and whether to
-- look again at once.
-- $1 floor  $2 how many hints and edges at most
-- Safe: queue.release_nodes looks at the edges of a node under the lock on its entry, each time with a newer snapshot; it waits for nobody. Runs
-- with synchronous_commit=off: lost, the hints are there again.
select r.hints, r.lowest, r.moved, r.moved > 0 and (r.more or r.hints >= $2) as more
from queue.release_nodes($1, $2) r
