-- nothing -> ready | scheduled: enqueues one job, in a separate transaction whose commit does not wait for the WAL flush.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 delay in ms, or null
-- Safe: sent only outside a transaction. synchronous_commit is therefore off for this statement only, even if the statement fails. Later
-- statements on the connection use the previous value. For all other properties, see enqueue.sql.
with relaxed as materialized (
  select pg_catalog.set_config('synchronous_commit', 'off', true)
)
select queue.insert_job($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')))
from relaxed
