-- nothing -> ready | scheduled | blocked, unless the job's uniqueness key is held: enqueues the jobs of a chunk one by one, in the caller's
-- transaction. Returns their ids and outcomes in the given order.
-- $1 job types  $2 payloads  $3 options, whose ordering keys are already locked
-- Safe: see queue.enqueue_each.
select e.id, e.outcome
from queue.enqueue_each($1::pg_catalog.text[], $2::pg_catalog.jsonb[], $3::pg_catalog.jsonb[]) e
