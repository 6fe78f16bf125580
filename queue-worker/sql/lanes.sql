-- Returns the lanes that were created since the snapshot $1 and belong to the job types $2 and the queues $3. Also returns this statement's
-- snapshot for the next call. The snapshot's oldest transaction id alone would not suffice: while that transaction is open, every call
-- would return the same lanes again. Returns all lanes if $1 is null or contains ids that this server has not assigned yet. Such ids show
-- that a failover has lost transactions, whose ids will be assigned again.
-- A lane whose transaction id is not assigned yet was restored from another cluster. A call for all lanes returns such lanes too.
-- $1 snapshot as text, or null for all lanes  $2 job types  $3 queues, or null for any
select h.horizon, l.lane, l.queue, l.job_type, l.priority, l.solo, l.paired
from (
  select n.now::text as horizon,
    case when pg_snapshot_xmax($1::pg_snapshot) <= pg_snapshot_xmax(n.now) then $1::pg_snapshot end as before,
    case when pg_snapshot_xmax($1::pg_snapshot) <= pg_snapshot_xmax(n.now) then pg_snapshot_xmax(n.now) end as above
  from (select pg_current_snapshot() as now) n
) h
left join lateral (
  select distinct b.lane, b.queue, b.job_type, b.priority, b.solo, b.paired
  from queue.lane b
  where b.born >= coalesce(pg_snapshot_xmin(h.before), '0'::xid8) and coalesce(not pg_visible_in_snapshot(b.born, h.before), true)
    and coalesce(b.born < h.above, true)
    and b.job_type = any ($2) and ($3::text[] is null or b.queue = any ($3))
) l on true
