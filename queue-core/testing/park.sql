-- signal -> nothing, scheduled -> parked: deletes the signals $2 that an attempt of the job $1 received. Unless $3 is null, also parks
-- the job to wait for the signals $3. Used in tests.
-- $1 job  $2 sequence numbers of received signals  $3 names of awaited signals, or null  $4 timeout in ms, or null
-- Safe: runs in the test's transaction, which locked the job's row in ready and then snoozed the job.
with eaten as (
  delete from queue.signal
  where id = $1 and seq = any ($2::bigint[])
), deleted as (
  delete from queue.scheduled
  where id = $1 and $3::text[] is not null
  returning id, lane, attempts, crashes
), parked as (
  insert into queue.parked (id, lane, attempts, crashes, since, run_at, names)
  select id, lane, attempts, crashes, clock_timestamp(), clock_timestamp() + $4::float8 * interval '1 millisecond', $3
  from deleted
)
insert into queue.signal_hint (id)
select id
from deleted
