-- The lanes ($1 queue, $2 job type, $3 priority)[n], in that order, null if the caller has to enqueue through a door; the time now; the most bytes a
-- payload may have in this store; whether one of the queues has a capacity; and the transaction's number, if it has one. See queue.meet_lanes.
-- $1 queues  $2 job types  $3 priorities, each pair of them at most once  $4 whether jobs are written next, whatever capacity there is
-- Safe: queue.meet_lane waits for nobody; written twice, a lane is the same, and rolled back, it takes nothing from others. The transaction has
-- a number by the end of this, so that no lane goes that was seen here; but none for what may be refused yet, and is then asked again.
select m.lanes, m.now, m.payload_limit, m.has_capacity, m.number
from queue.meet_lanes($1, $2, $3::smallint[]::int[], $4) m
