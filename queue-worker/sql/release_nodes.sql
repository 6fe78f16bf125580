-- parked -> ready | done (cancelled) | dead: releases flow nodes whose awaited jobs have ended. Consumes up to $2 hints at or above the
-- floor $1. Returns the number of consumed hints, the position of the lowest hint (null if there is none), the number of moved nodes, and
-- whether to run again immediately.
-- $1 floor  $2 maximum number of hints and of edges
-- Safe: queue.release_nodes holds the row lock of a node while it checks the node's edges with a newer snapshot, and never waits for a
-- lock. Runs with synchronous_commit=off: if a crash loses the commit, the hints still exist.
select r.hints, r.lowest, r.moved, r.moved > 0 and (r.more or r.hints >= $2) as more
from queue.release_nodes($1, $2) r
