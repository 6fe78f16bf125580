-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held: enqueues one job, in a transaction of the caller's own driver.
-- Returns the job's id and the outcome.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text; all parameters are texts, which every driver can send
-- Safe: queue.enqueue_with writes in one transaction, and a rollback removes everything and frees the keys.
select e.id, e.outcome
from queue.enqueue_with($1::pg_catalog.text, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
