-- Returns whether a queue exists. A queue exists if it has a lane or a capacity. A queue's first enqueue creates a lane, and housekeeping
-- removes unused lanes.
-- $1 queue
-- Safe: read-only.
select exists (select from queue.lane l where l.queue = $1) or exists (select from queue.capacity c where c.queue = $1)
