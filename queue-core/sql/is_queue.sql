-- Returns whether a queue exists. A queue exists if a job was ever enqueued into it, or if it has a capacity.
-- $1 queue
-- Safe: read-only.
select exists (select from queue.lane l where l.queue = $1) or exists (select from queue.capacity c where c.queue = $1)
