-- Returns, for each queue with ready jobs, the time since which the first ready job has been waiting. See queue.oldest.
-- $1 maximum number of queues, those with the longest waits; null for all
-- Safe: read-only.
select o.queue, o.since, o.waited_ms, o.partial
from queue.oldest($1) o
