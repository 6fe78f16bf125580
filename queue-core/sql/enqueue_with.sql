-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held: one job, in the caller's transaction; returns its id and what
-- came of it.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text  $4 whether the commit need not wait for the disk
-- Safe: queue.enqueue_with is one transaction's writes; rolled back, nothing is left and the keys are free. $4 is true only outside a
-- transaction, so that the setting ends with this statement.
with relaxed as materialized (
  select case when $4::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id, e.outcome
from relaxed
cross join lateral queue.enqueue_with($1, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
