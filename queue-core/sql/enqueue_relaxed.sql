-- nothing -> ready | scheduled: one job, in a transaction of its own whose commit does not wait for the disk.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 run after this many ms, or null
-- Safe: only ever sent outside a transaction, so that the setting ends with this statement, whatever becomes of it: the next user of the
-- connection does not have it, and nothing of the caller's is committed under it. All else is as in enqueue.sql.
with relaxed as materialized (
  select pg_catalog.set_config('synchronous_commit', 'off', true)
)
select queue.insert_job($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')))
from relaxed
