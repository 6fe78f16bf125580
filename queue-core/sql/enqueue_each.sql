-- nothing -> ready | scheduled | blocked, each unless its key is held: a chunk of jobs, in the caller's transaction; returns their ids and what
-- came of them, in the order given.
-- $1 job types  $2 payloads  $3 queues  $4 priorities  $5 max_attempts  $6 run at, or null for now  $7 ordering keys, or null, locked before
-- $8 key policies  $9 uniqueness keys, or null  $10 how long they are held  $11 what to do if they are
-- Safe: as queue.enqueue_with, one after the other. Jobs without a key come first, in the order given; keys are then taken in the order of
-- their hashes, so that two producers with the same keys do not wait for each other.
with given as materialized (
  select g.*
  from rows from (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.jsonb[]), pg_catalog.unnest($3::pg_catalog.text[]),
    pg_catalog.unnest($4::smallint[]), pg_catalog.unnest($5::smallint[]), pg_catalog.unnest($6::pg_catalog.timestamptz[]),
    pg_catalog.unnest($7::pg_catalog.text[]), pg_catalog.unnest($8::pg_catalog.text[]), pg_catalog.unnest($9::pg_catalog.text[]),
    pg_catalog.unnest($10::pg_catalog.text[]), pg_catalog.unnest($11::pg_catalog.text[])
  ) with ordinality g (job_type, payload, queue, priority, max_attempts, run_at, key, key_policy, unique_key, unique_while, on_conflict, place)
  order by queue.unique_hash(g.queue, g.job_type, g.unique_key) nulls first, g.place
)
select e.id, e.outcome
from given g
cross join lateral queue.enqueue_with(
  job_type => g.job_type, payload => g.payload, queue => g.queue, priority => g.priority, max_attempts => g.max_attempts, run_at => g.run_at,
  key => g.key, key_policy => g.key_policy, unique_key => g.unique_key, unique_while => g.unique_while, on_conflict => g.on_conflict
) e
order by g.place
