-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held: one job, in the transaction of whatever driver the caller has;
-- returns its id and what came of it.
-- $1 job type  $2 payload as JSON text  $3 options as JSON text; all are texts, which every driver can send
-- Safe: queue.enqueue_with is one transaction's writes; rolled back, nothing is left and the keys are free.
select e.id, e.outcome
from queue.enqueue_with($1::pg_catalog.text, $2::pg_catalog.text::pg_catalog.jsonb, $3::pg_catalog.text::pg_catalog.jsonb) e
