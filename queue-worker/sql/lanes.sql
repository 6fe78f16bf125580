-- The lanes born since the horizon $1 that a worker with the job types $2 and the queues $3 (null for any) serves, and the next horizon:
-- every transaction below it has ended, so what it wrote is in this answer or was in an earlier one.
-- $1 horizon as text  $2 job types  $3 queues or null
select h.horizon, l.lane, l.queue, l.job_type, l.priority, l.solo
from (select pg_snapshot_xmin(pg_current_snapshot())::text as horizon) h
left join lateral (
  select distinct b.lane, b.queue, b.job_type, b.priority, b.solo
  from queue.lane b
  where b.born >= $1::xid8 and b.job_type = any ($2) and ($3::text[] is null or b.queue = any ($3))
) l on true
