-- step: journals finished steps of many attempts. Returns the token, job id and name of each accepted step.
-- $1 tokens  $2 ids  $3 names  $4 attempts  $5 run times in ms  $6 durations of sleeps in ms, null for other steps
-- $7 outputs as JSON text, null for none
-- Safe: like a verdict, a step is accepted only while its token identifies a lease that contains the job. A zombie worker writes nothing.
-- The lease stays locked until the commit, so no recovery or verdict comes between this check and the write. Leases are locked in token
-- order. Idempotent: a second call after a lost response leaves each step as first written.
with input as materialized (
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
  from input s
  join held h on h.token = s.token and s.id = any (h.ids)
), written as (
  insert into queue.step (id, name, attempt, at, ran_ms, until, output)
  select f.id, f.name, f.attempt, statement_timestamp(), f.ran_ms, statement_timestamp() + f.wait_ms * interval '1 millisecond',
    f.output::jsonb
  from fenced f
  order by f.id, f.name
  on conflict do nothing
)
select f.token, f.id, f.name
from fenced f
