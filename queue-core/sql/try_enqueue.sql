-- nothing -> ready | scheduled | blocked: enqueues one job, in the caller's transaction. Enqueues nothing if another job holds the
-- uniqueness key or the queue is at its capacity. Returns the id of the enqueued job or of the job that holds the key, and the outcome. The
-- id is null if the queue is at its capacity.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text  $4 whether the commit may return before it is durable
-- Safe: see enqueue_with.sql. If the queue is at its capacity, queue.try_enqueue rolls back its own writes, and the caller's transaction
-- stays usable. $4 is true only outside a transaction, so synchronous_commit is off for this statement only.
with relaxed as materialized (
  select case when $4::boolean then pg_catalog.set_config('synchronous_commit', 'off', true) end
)
select e.id, e.outcome
from relaxed
cross join lateral queue.try_enqueue($1, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
