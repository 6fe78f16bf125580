-- ready -> ready (in fair queues): moves up to $3 jobs of each lane in $1, starting at the lane's floor $2, into the lane's fair queues.
-- The moved jobs were retried, became due, were unblocked, or were enqueued without a fairness key. Returns one row per lane from which
-- jobs were moved: the lane, the lowest previous position of a moved job, and the number of moved jobs.
-- $1 lanes  $2 floors  $3 maximum number of jobs per lane
-- Safe: rows are locked with SKIP LOCKED and deleted in one statement, so a job is moved at most once. Each job gets a new position at
-- the end of its fair queue, and keeps its attempts and crashes. Runs with synchronous_commit=off: a move lost in a crash leaves the jobs
-- in their old positions.
with held as materialized (
  select p.at
  from unnest($1::bigint[], $2::bigint[]) l (lane, floor)
  cross join lateral (
    select r.ctid as at
    from queue.ready r
    where r.lane = l.lane and r.seq >= l.floor
    order by r.seq
    limit $3
    for update skip locked
  ) p
), moved as materialized (
  delete from queue.ready
  where ctid = any (array(select h.at from held h))
  returning lane, seq, id, attempts, crashes
), met as materialized (
  select k.lane, queue.ensure_fair_lane(k.lane) as paired from (select distinct m.lane from moved m) k
), entered as (
  insert into queue.ready (lane, seq, id, attempts, crashes, fair_id)
  select coalesce(t.paired, queue.paired_lane(m.lane)), queue.next_id(), m.id, m.attempts, m.crashes, coalesce(j.fair_id, 0)
  from moved m
  left join met t on t.lane = m.lane
  left join lateral (select j.fair_id from queue.job j where j.id = m.id offset 0) j on true
  order by m.lane, m.seq
)
select m.lane, min(m.seq) as lowest, count(*) as jobs
from moved m
group by m.lane
