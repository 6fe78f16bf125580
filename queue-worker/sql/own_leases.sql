-- Returns the leases of the worker $1 with the jobs to cancel, one row per job. A lease without jobs to cancel has one row without a job.
-- $1 worker
-- Safe: read-only. The worker registers the lease of each claim before it sends the claim, and compares the result with its registry
-- only after the query. Even a lease that is claimed during the query is therefore registered.
select l.token, u.id
from queue.lease l
left join lateral unnest(l.cancelling) u (id) on u.id = any (l.ids)
where l.worker = $1
