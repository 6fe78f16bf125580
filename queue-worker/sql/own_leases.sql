-- Returns the leases of the worker $1 with the jobs to cancel, one row per job. A lease without jobs to cancel has one row without a job.
-- $1 worker
-- Safe: read-only. The worker compares the result with its registry afterwards, so a lease claimed during the query is registered.
select l.token, u.id
from queue.lease l
left join lateral unnest(l.cancelling) u (id) on u.id = any (l.ids)
where l.worker = $1
