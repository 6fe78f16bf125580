-- nothing -> ready | scheduled | blocked: enqueues the jobs of a batch individually, in the caller's transaction. Enqueues no job whose
-- uniqueness key is held by another job. Returns the jobs' ids and outcomes in the given order.
-- $1 job types  $2 payloads  $3 options
-- Safe: see queue.enqueue_each. The caller has already locked the ordering keys.
select e.id, e.outcome
from queue.enqueue_each($1::pg_catalog.text[], $2::pg_catalog.jsonb[], $3::pg_catalog.jsonb[]) e
