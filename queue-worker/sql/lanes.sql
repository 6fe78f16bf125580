-- The lanes born since the snapshot $1 that a worker with the job types $2 and the queues $3 (null for any) serves, and this statement's
-- snapshot for the next time: what is not visible in the one is in the answer of the other, however long its transaction took. A snapshot,
-- not the oldest transaction in it: while that one goes on, every look would bring all lanes again.
-- $1 snapshot as text  $2 job types  $3 queues or null
select h.horizon, l.lane, l.queue, l.job_type, l.priority, l.solo
from (select pg_current_snapshot()::text as horizon) h
left join lateral (
  select distinct b.lane, b.queue, b.job_type, b.priority, b.solo
  from queue.lane b
  where b.born >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(b.born, $1::pg_snapshot)
    and b.job_type = any ($2) and ($3::text[] is null or b.queue = any ($3))
) l on true
