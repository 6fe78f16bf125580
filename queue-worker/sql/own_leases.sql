-- Returns the leases of the worker $1, each with its jobs that are to be cancelled, or one row without a job.
-- $1 worker
-- Safe: read-only. The worker compares the result with its registry afterwards: a lease claimed meanwhile is registered by then.
select l.token, u.id
from queue.lease l
left join lateral unnest(l.cancelling) u (id) on u.id = any (l.ids)
where l.worker = $1
