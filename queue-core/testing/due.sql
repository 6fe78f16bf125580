-- scheduled | parked -> ready: makes all due jobs ready. Used in tests.
-- Safe: like promote.sql, but compares due times with clock_timestamp(), because now() does not advance in a test's transaction. Rows are
-- locked with SKIP LOCKED.
with due as materialized (
  delete from queue.scheduled
  where ctid = any (array(
    select s.ctid
    from queue.scheduled s
    where s.run_at <= clock_timestamp()
    order by s.run_at
    for update skip locked
  ))
  returning run_at, id, lane, attempts, crashes
), timed as materialized (
  delete from queue.parked
  where ctid = any (array(
    select p.ctid
    from queue.parked p
    where p.run_at <= clock_timestamp()
    order by p.run_at
    for update skip locked
  ))
  returning run_at, id, lane, attempts, crashes
)
insert into queue.ready (lane, seq, id, attempts, crashes)
select lane, queue.next_id(), id, attempts, crashes
from (select * from due union all select * from timed) t
order by run_at, id
