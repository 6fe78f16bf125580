-- step: what attempts have finished, many at once and none of it journaled yet; returns those that were accepted.
-- $1 tokens  $2 ids  $3 names  $4 attempts  $5 run times in ms  $6 of sleeps: waits in ms, else null  $7 outputs as JSON text, null for none
-- Safe: as journal.sql is, of which this is the shorter form: one that is journaled already is an error, a violation of `step_pkey`, and nothing is
-- written; then journal.sql says what it is. That writes a further record to the log for each row, so that it can go back.
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
