-- lease, looked at: the jobs that worker $1 runs and that are to be cancelled, each with the token of its lease.
-- $1 worker
select l.token, u.id
from queue.lease l
cross join lateral unnest(l.cancelling) u (id)
where l.worker = $1 and l.cancelling is not null and u.id = any (l.ids)
