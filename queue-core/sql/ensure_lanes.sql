-- Finds or creates one lane for each combination of queue, job type and priority. Returns the lanes in the given order, or null if the
-- caller has to enqueue through SQL functions. Also returns the current time and the store's maximum payload size in bytes.
-- `has_capacity` is true if any of the queues has a capacity, and `number` is the transaction's id or null. See queue.ensure_lanes.
-- $1 queues  $2 job types  $3 priorities, each combination at most once
-- $4 whether the caller has already checked the capacities, and writes the jobs next
-- Safe: transactions that create lanes do not wait for each other, only for a transaction in queue.set_capacity. Concurrent transactions
-- may insert identical rows for a lane, which is harmless, and a rollback does not affect other transactions. If $4 is true or no queue
-- has a capacity, the transaction is assigned an id, so no returned lane is dropped. Otherwise this function assigns no id, because the
-- capacity check may still reject the jobs. After the check, the caller executes the statement again with $4 set.
select m.lanes, m.now, m.payload_limit, m.has_capacity, m.number
from queue.ensure_lanes($1, $2, $3::smallint[]::int[], $4) m
