-- step: journals finished steps of many attempts, none of which is journaled yet. Returns the accepted steps.
-- $1 tokens  $2 ids  $3 names  $4 attempts  $5 run times in ms  $6 waits of sleeps in ms, else null  $7 outputs as JSON text, null for none
-- Safe: like journal.sql, without `on conflict`. If a step is already journaled, it violates `step_pkey`, nothing is written, and the caller falls
-- back to journal.sql. `on conflict` would write one more WAL record per row, which confirms the speculative insertion.
with said as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[], $3::text[], $4::smallint[], $5::int[], $6::float8[], $7::text[])
    s (token, id, name, attempt, ran_ms, wait_ms, output)
), held as materialized (
  select l.token, l.ids
  from queue.lease l
  where l.token = any ($1)
  order by l.token
  for share
), fenced as materialized (
  select s.*
  from said s
  join held h on h.token = s.token and s.id = any (h.ids)
), written as (
  insert into queue.step (id, name, attempt, at, ran_ms, until, output)
  select f.id, f.name, f.attempt, statement_timestamp(), f.ran_ms, statement_timestamp() + f.wait_ms * interval '1 millisecond',
    f.output::jsonb
  from fenced f
  order by f.id, f.name
)
select f.token, f.id, f.name
from fenced f
