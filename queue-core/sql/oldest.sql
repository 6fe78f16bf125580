-- Returns how long the first ready job of each queue has been waiting. See queue.oldest.
-- $1 maximum number of queues, longest waiting first, or null for all
-- Safe: read-only.
select o.queue, o.since, o.waited_ms, o.partial
from queue.oldest($1) o
