-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held or the queue is full: one job, in the caller's transaction;
-- returns its id, null if the queue is full, and what came of it.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 run after this many ms, or null
-- $8 ordering key, or null  $9 key policy  $10 uniqueness key, or null  $11 how long it is held  $12 what to do if it is
-- $13 whether the commit need not wait for the disk
-- Safe: as enqueue_with.sql; what queue.try_enqueue wrote before it found the queue full it takes back itself. $13 is true only outside a
-- transaction, so that the setting ends with this statement.
with relaxed as materialized (
  select case when $13::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id, e.outcome
from relaxed
cross join lateral queue.try_enqueue(
  job_type => $1, payload => $2::pg_catalog.jsonb, queue => $3, priority => $4, max_attempts => $5,
  run_at => coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')),
  key => $8, key_policy => $9, unique_key => $10, unique_while => $11, on_conflict => $12
) e
