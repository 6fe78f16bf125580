-- nothing -> ready | scheduled: enqueues a batch of jobs, in the caller's transaction. Returns the ids of the jobs in the given order.
-- The ids are ascending.
-- $1 payloads  $2 lanes  $3 max_attempts  $4 run at, or null for now
-- Safe: inserts in one statement, and a rollback removes all rows. Jobs are claimed in the order of their ids. The ids are sorted before
-- they are assigned to jobs, because the id sequence occasionally restarts at 0 within a millisecond. The statement reads no table, so
-- outdated statistics cannot affect its plan.
with reserved as materialized (
  select array(
    select queue.next_id()
    from (select pg_catalog.generate_series(1, pg_catalog.cardinality($1::pg_catalog.jsonb[]))) n
    order by 1
  ) as ids
), stored as (
  insert into queue.job (id, lane, max_attempts, payload)
  select pg_catalog.unnest(r.ids), pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::smallint[]), pg_catalog.unnest($1)
  from reserved r
), entries as not materialized (
  select pg_catalog.unnest(r.ids) as id, pg_catalog.unnest($2) as lane, pg_catalog.unnest($4::pg_catalog.timestamptz[]) as run_at
  from reserved r
), readied as (
  insert into queue.ready (lane, seq, id)
  select e.lane, e.id, e.id
  from entries e
  where e.run_at is null
), put_off as (
  insert into queue.scheduled (run_at, id, lane)
  select e.run_at, e.id, e.lane
  from entries e
  where e.run_at is not null
)
select r.ids
from reserved r
