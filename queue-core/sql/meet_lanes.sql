-- Finds or creates the lanes ($1 queue, $2 job type, $3 priority)[n]. Returns the lanes in the given order, or null if the caller has to enqueue
-- through SQL functions. Also returns the current time, the store's maximum payload size in bytes, whether one of the queues has a capacity, and
-- the transaction's number, if it has one. See queue.meet_lanes.
-- $1 queues  $2 job types  $3 priorities, each combination at most once  $4 whether jobs are written next, regardless of capacity
-- Safe: queue.meet_lane never waits for another transaction. Creating a lane twice has no effect, and a rollback does not affect other
-- transactions. If jobs are written next, the transaction has a number afterwards, so that no returned lane is dropped. If the jobs may still be
-- rejected, the transaction gets no number, and the statement is executed again later.
select m.lanes, m.now, m.payload_limit, m.has_capacity, m.number
from queue.meet_lanes($1, $2, $3::smallint[]::int[], $4) m
