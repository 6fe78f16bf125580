-- nothing -> ready | scheduled | blocked, each unless its key is held: a chunk of jobs, in the caller's transaction; returns their ids and what
-- came of them, in the order given.
-- $1 job types  $2 payloads  $3 options; their ordering keys are locked before
-- Safe: see queue.enqueue_each.
select e.id, e.outcome
from queue.enqueue_each($1::pg_catalog.text[], $2::pg_catalog.jsonb[], $3::pg_catalog.jsonb[]) e
