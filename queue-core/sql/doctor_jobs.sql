-- Finds jobs that need attention: quarantined jobs, which have crashed a process, and dead letters that block their ordering key. Returns
-- one row per job, up to twenty per kind of finding.
-- $1 number of dead letters to check, newest first
-- Safe: read-only.
(select 'suspect' as kind, format('job %s has crashed %s processes, and waits to be retried apart from other jobs', r.id, r.crashes) as message,
  null as fix, jsonb_build_object('job', r.id::text, 'crashes', r.crashes) as facts
from queue.lane l
cross join lateral (
  select r.id, r.crashes
  from queue.ready r
  where r.lane = l.lane
  order by r.seq
  limit 20
) r
where l.solo and r.crashes > 0
limit 20)
union all
(select 'key_held', format('the dead letter %s blocks its ordering key', d.id), format('queue-worker requeue %s', d.id),
  jsonb_build_object('job', d.id::text, 'died_at', d.died_at)
from (
  select n.id, n.died_at
  from queue.dead n
  order by n.died_at desc
  limit $1
) d
cross join lateral (
  select o.key
  from queue.job o
  where o.id = d.id and o.key is not null and (o.system ? 'skips') is not true
  limit 1
) j
cross join lateral (
  select
  from queue.blocked b
  where b.key = j.key
  limit 1
) b
order by d.died_at
limit 20)
