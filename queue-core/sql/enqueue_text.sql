-- nothing -> ready | scheduled | blocked: enqueues one job, in a transaction of the caller's database driver. Enqueues nothing if another
-- job holds the uniqueness key. Returns the id of the enqueued job or of the job that holds the key, and the outcome.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text
-- Safe: queue.enqueue_with writes in one transaction, and a rollback removes all rows and frees the keys. All parameters are texts,
-- because every driver can send texts.
select e.id, e.outcome
from queue.enqueue_with($1::pg_catalog.text, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
