-- Returns whether a queue exists: whether a job was ever enqueued into it, or it has a capacity.
-- $1 queue
-- Safe: reads only.
select exists (select from queue.lane l where l.queue = $1) or exists (select from queue.capacity c where c.queue = $1)
