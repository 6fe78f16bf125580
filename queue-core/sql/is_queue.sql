-- Whether there is this queue: a job was enqueued into it, or it has a capacity.
-- $1 queue
-- Safe: it only reads.
select exists (select from queue.lane l where l.queue = $1) or exists (select from queue.capacity c where c.queue = $1)
