-- ready -> done | dead | scheduled | nothing: the verdict of the job whose entry ($1 lane, $2 seq, $3 id) this transaction holds; returns
-- the id, or nothing if the entry is gone.
-- $4 verdict  $5 attempts  $6 crashes  $7 wait in ms  $8 run time in ms  $9 output as JSON text  $10 error
-- $11 the ordering key that goes on without the job from now on, or null
-- Safe: everything follows from the deleted entry. If the lock was lost, which takes a handler that ended the transaction by itself, this
-- waits for whoever has the entry now, and finds nothing once that one has ended the job. Times are the clock's, not the transaction's start,
-- which is the handler's. A job that is to be given back ('release') or cancelled ('cancel') is not ended here: nothing changes for these words,
-- and none for 'forget', which has a statement of its own (finish_forgotten.sql).
with fenced as materialized (
  delete from queue.ready
  -- guard: its lane [lane = $1 => $1::bigint is not null]; its place [seq = $2 => $2::bigint is not null]; its id [id = $3 => $3::bigint is not null]
  where lane = $1 and seq = $2 and id = $3
    and $4::text in ('complete', 'retry', 'snooze', 'dead')  -- guard: only words that say where the job goes
  -- guard: ended: out of its line [case .. end => lane]
  returning id, case when line is null then lane else queue.twin_of(lane) end as lane
), finished as (
  insert into queue.done (id, finished_at, ran_ms, attempts, output)
  select id, clock_timestamp(), $8::int, $5::smallint, $9::text::jsonb  -- guard: finished by the clock [clock_timestamp => now]
  from fenced  -- guard: completed if the entry was there [fenced => (select $3::bigint as id) f]
  where $4::text = 'complete'  -- guard: completed by verdict [= 'complete' => is not null]
), waiting as (
  insert into queue.scheduled (run_at, id, lane, attempts, crashes)
  -- guard: a snooze is no attempt [ - ($4 = 'snooze')::int]; waits count from the clock [clock_timestamp => now]; waits at all [1 millisecond => 0]
  select clock_timestamp() + $7::float8 * interval '1 millisecond', id, lane, $5 - ($4 = 'snooze')::int, $6::smallint
  from fenced
  where $4 in ('retry', 'snooze')  -- guard: waiting by verdict
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select id, clock_timestamp(), lane, $5, $6, $10::text
  from fenced
  where $4 = 'dead'  -- guard: died by verdict
), failed as (
  insert into queue.failure (id, attempt, at, ran_ms, error)
  select id, $5, clock_timestamp(), $8, $10
  from fenced
  where $4 in ('retry', 'dead')  -- guard: failed by verdict
), freed as (
  delete from queue.active_key a
  using fenced f
  where a.key = $11::bigint and a.id = f.id
  returning a.key, a.seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed  -- guard: a freed key is left a hint [freed => freed where false]
)
select id
from fenced
