-- scheduled | parked -> ready: promotes up to $1 due jobs per state, by the database's clock. Returns the queues of the promoted jobs,
-- with the number of promoted jobs per queue.
-- $1 maximum number of jobs per state
-- Safe: rows are locked with SKIP LOCKED and deleted in one statement. Each job gets a new position in its lane, so that no job falls
-- below a floor.
with due as materialized (
  delete from queue.scheduled
  where ctid = any (array(
    select s.ctid
    from queue.scheduled s
    where s.run_at <= now()
    order by s.run_at
    limit $1
    for update skip locked
  ))
  returning run_at, id, lane, attempts, crashes
), timed as materialized (
  delete from queue.parked
  where ctid = any (array(
    select p.ctid
    from queue.parked p
    where p.run_at <= now()
    order by p.run_at
    limit $1
    for update skip locked
  ))
  returning run_at, id, lane, attempts, crashes
), moved as materialized (
  select run_at, id, lane, attempts, crashes from due
  union all
  select run_at, id, lane, attempts, crashes from timed
), entered as (
  insert into queue.ready (lane, seq, id, attempts, crashes)
  select lane, queue.next_id(), id, attempts, crashes
  from moved
  order by run_at, id
)
select l.queue, count(*) as jobs
from moved d
cross join lateral (select l.queue from queue.lane l where l.lane = d.lane limit 1) l
group by l.queue
