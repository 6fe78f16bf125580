-- lease, looked at: those of the worker $1, each with its jobs that are to be cancelled, or with none.
-- $1 worker
-- Safe: it only reads. Whoever asks compares with what it knows only afterwards: a lease that came meanwhile is known by then.
select l.token, u.id
from queue.lease l
left join lateral unnest(l.cancelling) u (id) on u.id = any (l.ids)
where l.worker = $1
