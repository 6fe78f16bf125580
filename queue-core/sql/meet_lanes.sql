-- Finds or creates the lanes ($1 queue, $2 job type, $3 priority)[n]. Returns them in that order, or null if the caller has to enqueue through
-- SQL functions; the current time; the store's maximum payload size in bytes; whether one of the queues has a capacity; and the transaction's
-- number, if it has one. See queue.meet_lanes.
-- $1 queues  $2 job types  $3 priorities, each combination at most once  $4 whether jobs are written next, regardless of capacity
-- Safe: queue.meet_lane waits for no other transaction. Creating a lane twice has no effect, and a rollback takes nothing from others. Afterwards
-- the transaction has a number, so that no lane returned here is dropped. It gets none if the jobs may still be refused, and then this runs
-- again.
select m.lanes, m.now, m.payload_limit, m.has_capacity, m.number
from queue.meet_lanes($1, $2, $3::smallint[]::int[], $4) m
