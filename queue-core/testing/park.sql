-- signal -> nothing, scheduled -> parked: deletes the signals that an attempt of the job $1 received, and parks the job if it waits for more. Used
-- in tests.
-- $1 job  $2 sequence numbers of signals  $3 signals for which the job waits, or null  $4 timeout in ms, or null
-- Safe: runs in the test's transaction, which has the job's entry locked, and has just snoozed the job.
with eaten as (
  delete from queue.signal
  where id = $1 and seq = any ($2::bigint[])
), gone as (
  delete from queue.scheduled
  where id = $1 and $3::text[] is not null
  returning id, lane, attempts, crashes
), parked as (
  insert into queue.parked (id, lane, attempts, crashes, since, run_at, names)
  select id, lane, attempts, crashes, clock_timestamp(), clock_timestamp() + $4::float8 * interval '1 millisecond', $3
  from gone
)
insert into queue.signal_hint (id)
select id
from gone
