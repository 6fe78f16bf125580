-- nothing -> ready | scheduled | blocked: enqueues one job, in the caller's transaction. Enqueues nothing if another job holds the
-- uniqueness key. Returns the id of the enqueued job or of the job that holds the key, and the outcome.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text  $4 whether the commit may return before it is durable
-- Safe: queue.enqueue_with writes in one transaction, and a rollback removes all rows and frees the keys. $4 is true only outside a
-- transaction, so synchronous_commit is off for this statement only.
with relaxed as materialized (
  select case when $4::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id, e.outcome
from relaxed
cross join lateral queue.enqueue_with($1, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
