-- Finds or creates one lane for each combination of queue, job type and priority. Returns the lanes in the given order, or null if the
-- caller has to enqueue through SQL functions. Also returns the current time and the store's maximum payload size in bytes.
-- `has_capacity` is true if one of the queues has a capacity, and `number` is the transaction's id or null. See queue.ensure_lanes.
-- $1 queues  $2 job types  $3 priorities, each combination at most once
-- $4 whether the caller has already checked the capacities, and writes the jobs next
-- Safe: queue.ensure_lane never waits for another transaction. Creating a lane twice has no effect, and a rollback does not affect other
-- transactions. If $4 is true or no queue has a capacity, the transaction is assigned an id, so no returned lane is dropped. Otherwise
-- the transaction is assigned no id, because the capacity check may still reject the jobs. After the check, the caller executes the
-- statement again with $4 set.
select m.lanes, m.now, m.payload_limit, m.has_capacity, m.number
from queue.ensure_lanes($1, $2, $3::smallint[]::int[], $4) m
