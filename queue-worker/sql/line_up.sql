-- ready -> ready, fairly queued: moves up to $3 jobs of each of the plain lanes $1, starting at its floor $2, into their fair queues. Such jobs
-- were retried, became due, were unblocked, or were enqueued without a fair key. Returns the lanes, the lowest moved place of each lane, and the
-- number of jobs.
-- $1 lanes  $2 floors  $3 maximum number of jobs per lane
-- Safe: rows are locked with SKIP LOCKED and deleted in one statement, so a job is moved once, unless a claim or an operator takes the job first.
-- Each job gets a new place at the end of its fair queue, and keeps its attempts and crashes. Runs with synchronous_commit=off: a lost move leaves
-- the jobs in place.
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
  select k.lane, queue.meet_lined(k.lane) as lined from (select distinct m.lane from moved m) k
), entered as (
  insert into queue.ready (lane, seq, id, attempts, crashes, line)
  select coalesce(t.lined, queue.twin_of(m.lane)), queue.next_id(), m.id, m.attempts, m.crashes, coalesce(j.line, 0)
  from moved m
  left join met t on t.lane = m.lane
  left join lateral (select j.line from queue.job j where j.id = m.id offset 0) j on true
  order by m.lane, m.seq
)
select m.lane, min(m.seq) as lowest, count(*) as jobs
from moved m
group by m.lane
