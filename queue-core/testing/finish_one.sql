-- ready -> done | dead | scheduled: records the verdict of a job. This transaction has locked the job's row in ready. Returns the id, or
-- no row if the row in ready no longer exists or the verdict changes nothing.
-- $1 lane  $2 seq  $3 id  $4 verdict  $5 attempts  $6 crashes  $7 wait in ms  $8 run time in ms  $9 output as JSON text  $10 error
-- $11 ordering key that the job frees, or null
-- Safe: all writes depend on the deletion of the row in ready. If a handler has ended the transaction, the lock is lost. This statement
-- then waits for any session that has locked the row since, and finds no row if that session has ended the job. Times are from
-- clock_timestamp(), because the transaction started before the handler. Only the verdicts 'complete', 'retry', 'snooze' and 'dead'
-- change anything. After 'release' or 'cancel' the job stays in ready, and 'forget' has a separate statement (finish_forgotten.sql).
with fenced as materialized (
  delete from queue.ready
  where lane = $1 and seq = $2 and id = $3
    and $4::text in ('complete', 'retry', 'snooze', 'dead')
  returning id, case when fair_id is null then lane else queue.paired_lane(lane) end as lane
), finished as (
  insert into queue.done (id, finished_at, ran_ms, attempts, output)
  select id, clock_timestamp(), $8::int, $5::smallint, $9::text::jsonb
  from fenced
  where $4::text = 'complete'
), waiting as (
  insert into queue.scheduled (run_at, id, lane, attempts, crashes)
  select clock_timestamp() + $7::float8 * interval '1 millisecond', id, lane, $5 - ($4 = 'snooze')::int, $6::smallint
  from fenced
  where $4 in ('retry', 'snooze')
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select id, clock_timestamp(), lane, $5, $6, $10::text
  from fenced
  where $4 = 'dead'
), failed as (
  insert into queue.failure (id, attempt, at, ran_ms, error)
  select id, $5, clock_timestamp(), $8, $10
  from fenced
  where $4 in ('retry', 'dead')
), freed as (
  delete from queue.active_key a
  using fenced f
  where a.key = $11::bigint and a.id = f.id
  returning a.key, a.seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select id
from fenced
