-- signal -> nothing, scheduled -> parked: what an attempt of the job $1 in a test received, and that it waits for more.
-- $1 job  $2 places of signals  $3 signals that it waits for, or null  $4 for how many ms at most, or null
-- Safe: in the test's transaction, which holds the job's entry, and has just put it off.
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
