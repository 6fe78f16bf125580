-- nothing -> ready | scheduled | blocked: one job with an ordering key, in the caller's transaction.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 run after this many ms, or null
-- $8 key  $9 key policy  $10 whether the commit need not wait for the disk: only ever outside a transaction
-- Safe: as enqueue.sql, and enqueue_relaxed.sql; the key's lock goes with the transaction.
with relaxed as materialized (
  select case when $10::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id
from relaxed r
cross join lateral queue.enqueue_with($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')), $8, $9) e
