-- Returns whether exactly this queue and job type are paused, and the workers that have not acknowledged the pause yet. Returns at least
-- one row. See queue.pause_awaits.
-- $1 queue or '*'  $2 job type or '*'
-- Safe: read-only.
select exists (select from queue.paused p where p.queue = $1 and p.job_type = $2) as is_paused, a.id as worker, a.name, a.host, a.pid
from (select) one
left join queue.pause_awaits($1, $2) a on true
order by a.name, a.id
