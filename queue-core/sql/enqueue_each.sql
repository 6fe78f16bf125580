-- nothing -> ready | scheduled | blocked, each unless its key is held: a chunk of jobs, in the caller's transaction; returns their ids and what
-- came of them, in the order given.
-- $1 job types  $2 payloads  $3 options; their ordering keys are locked before
-- Safe: as queue.enqueue_with, one after the other. Jobs without a uniqueness key come first, in the order given; keys are then taken in the
-- order of their hashes, so that two producers with the same keys do not wait for each other.
with given as materialized (
  select g.*
  from rows from (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.jsonb[]), pg_catalog.unnest($3::pg_catalog.jsonb[])
  ) with ordinality g (job_type, payload, options, place)
  order by queue.unique_hash(coalesce(g.options operator(pg_catalog.->>) 'queue', 'default'), g.job_type,
    g.options operator(pg_catalog.->>) 'unique_key') nulls first, g.place
)
select e.id, e.outcome
from given g
cross join lateral queue.enqueue_with(g.job_type, g.payload, g.options) e
order by g.place
