-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held or the queue is at its capacity: enqueues one job, in the
-- caller's transaction. Returns the job's id, or null if the queue is at its capacity, and the outcome.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text  $4 whether the commit may return before it is on disk
-- Safe: as enqueue_with.sql. queue.try_enqueue itself rolls back what it wrote before the capacity was exceeded. $4 is true only outside a
-- transaction, so the setting ends with this statement.
with relaxed as materialized (
  select case when $4::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id, e.outcome
from relaxed
cross join lateral queue.try_enqueue($1, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
